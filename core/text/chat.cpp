#include "core/text/chat.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/suggest.h"
#include "core/text/chat_template.h"

namespace hone {

using Pieces = std::vector<ChatPiece>;

// The input of a rendering.
struct Conversation {
  const std::vector<Message>& messages;
  bool add_generation_prompt = false;
  size_t first_trained = 0;
  bool trains_on(size_t i) const { return i >= first_trained && messages[i].role == "assistant"; }
};

// A format, resolved for one tokenizer.
struct ChatParts {
  struct Style {
    std::string_view name;
    void (*write)(const ChatParts&, const Conversation&, Pieces&);
    std::vector<std::string> needs;  // tokens that the vocabulary must have
    std::string turn_end;            // see ChatParts; a template has its own
  };
  const Style* style = nullptr;
  std::optional<ChatTemplate> chat;
  std::string bos, eos;
  std::string document_bos;  // bos, if the tokenizer begins documents with it
  std::string turn_end;      // the token that ends an assistant's turn; "" if the format has none
};

namespace {

void write_chatml(const ChatParts&, const Conversation& of, Pieces& out) {
  for (size_t i = 0; i < of.messages.size(); ++i) {
    out.push_back({"<|im_start|>" + of.messages[i].role + "\n", false});
    out.push_back({of.messages[i].content + "<|im_end|>", of.trains_on(i)});
    out.push_back({"\n", false});
  }
  if (of.add_generation_prompt) out.push_back({"<|im_start|>assistant\n", false});
}

void write_llama3(const ChatParts& format, const Conversation& of, Pieces& out) {
  const auto header = [](const std::string& role) { return "<|start_header_id|>" + role + "<|end_header_id|>\n\n"; };
  out.push_back({format.bos, false});
  for (size_t i = 0; i < of.messages.size(); ++i) {
    out.push_back({header(of.messages[i].role), false});
    out.push_back({of.messages[i].content + "<|eot_id|>", of.trains_on(i)});
  }
  if (of.add_generation_prompt) out.push_back({header("assistant"), false});
}

void write_plain(const ChatParts& format, const Conversation& of, Pieces& out) {
  out.push_back({format.document_bos, false});
  for (size_t i = 0; i < of.messages.size(); ++i) {
    const Message& message = of.messages[i];
    out.push_back({message.content + (message.role == "assistant" ? format.eos : "\n"), of.trains_on(i)});
  }
}

void write_template(const ChatParts& format, const Conversation& of, Pieces& out) {
  const JinjaTemplate::Output rendered = format.chat->render(of.messages, of.add_generation_prompt);
  const std::string_view text = rendered.text;
  size_t done = 0;
  if (!of.add_generation_prompt) {
    for (const auto& [begin, end] : format.chat->assistant_spans(of.messages, rendered, of.first_trained)) {
      out.push_back({std::string(text.substr(done, begin - done)), false});
      out.push_back({std::string(text.substr(begin, end - begin)), true});
      done = end;
    }
  }
  out.push_back({std::string(text.substr(done)), false});
}

const std::vector<ChatParts::Style>& styles() {
  static const std::vector<ChatParts::Style> all = {
      {"chatml", write_chatml, {"<|im_start|>", "<|im_end|>"}, "<|im_end|>"},
      {"llama3", write_llama3, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, "<|eot_id|>"},
      {"plain", write_plain, {}, ""},
      {"template", write_template, {}, ""}};
  return all;
}

}  // namespace

std::vector<std::string> ChatFormat::names() {
  std::vector<std::string> out = {"auto"};
  for (const ChatParts::Style& style : styles()) out.emplace_back(style.name);
  return out;
}

ChatFormat ChatFormat::make(std::string_view name, const Tokenizer& tokenizer, int64_t today) {
  const auto has = [&](const std::string& token) { return tokenizer.find(token).has_value(); };
  const auto usable = [&](const ChatParts::Style& style) {
    return std::all_of(style.needs.begin(), style.needs.end(), has);
  };
  if (name == "auto") name = !tokenizer.chat_template().empty() ? "template" : usable(styles()[0]) ? "chatml" : "plain";
  const auto style =
      std::find_if(styles().begin(), styles().end(), [&](const ChatParts::Style& s) { return s.name == name; });
  if (style == styles().end())
    fail("unknown chat format '", name, "'", suggestion(name, names()), " (known: ", join(names(), ", "), ")");
  for (const std::string& token : style->needs)
    HONE_CHECK(has(token), "chat format ", name, " needs the token ", token, ", which the tokenizer lacks");

  auto parts = std::make_shared<ChatParts>();
  parts->style = &*style;
  parts->bos = tokenizer.special_token("bos_token");
  parts->eos = tokenizer.special_token("eos_token");
  const std::vector<int32_t> empty_document = tokenizer.encode_document("");
  if (!empty_document.empty() && tokenizer.bos() == empty_document.front()) parts->document_bos = parts->bos;
  parts->turn_end = style->turn_end;
  if (name == "template") {
    HONE_CHECK(!tokenizer.chat_template().empty(), "chat format template: ", tokenizer.chat_template_source(),
               " has no chat template (tokenizer_config.json's chat_template or chat_template.jinja); choose chatml, "
               "llama3 or plain");
    parts->chat.emplace(tokenizer, today);
    parts->turn_end = parts->chat->end_of_turn();
  }
  ChatFormat out;
  out.parts_ = std::move(parts);
  return out;
}

Pieces ChatFormat::render(const std::vector<Message>& messages, bool add_generation_prompt,
                          size_t first_trained) const {
  Pieces out;
  parts_->style->write(*parts_, {messages, add_generation_prompt, first_trained}, out);
  std::erase_if(out, [](const ChatPiece& piece) { return piece.text.empty(); });
  return out;
}

ChatTokens ChatFormat::encode(const Tokenizer& tokenizer, const std::vector<Message>& messages,
                              bool add_generation_prompt, size_t first_trained) const {
  ChatTokens out;
  for (const ChatPiece& piece : render(messages, add_generation_prompt, first_trained)) {
    const std::vector<int32_t> ids = tokenizer.encode(piece.text, true, out.ids.empty());
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.mask.resize(out.ids.size(), piece.assistant ? 1.0f : 0.0f);
  }
  return out;
}

std::vector<int32_t> ChatFormat::stop_ids(const Tokenizer& tokenizer) const {
  const std::optional<int32_t> id = parts_->turn_end.empty() ? std::nullopt : tokenizer.find(parts_->turn_end);
  return id ? std::vector<int32_t>{*id} : std::vector<int32_t>{};
}

// A template that cannot be parsed has no end of turn. Its users get the error.
std::optional<int32_t> find_end_of_turn(const Tokenizer& tokenizer) {
  try {
    const std::vector<int32_t> ids = ChatFormat::make("auto", tokenizer).stop_ids(tokenizer);
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  } catch (const Error&) {
    return std::nullopt;
  }
}

Json messages_json(std::span<const Message> messages) {
  JsonArray out;
  for (const Message& message : messages) {
    Json row = JsonObject{{"role", message.role}, {"content", message.content}};
    if (message.extra.is_object())
      for (const auto& [name, value] : message.extra.as_object()) row.set(name, value);
    out.push_back(std::move(row));
  }
  return out;
}

std::vector<Message> parse_messages(const Json& messages, std::string_view source) {
  HONE_CHECK(messages.is_array(), source, ": messages must be a list of {\"role\", \"content\"} objects, not ",
             messages.kind_name());
  HONE_CHECK(!messages.as_array().empty(), source, ": messages is empty");
  static const std::array<std::string_view, 4> roles = {"system", "user", "assistant", "tool"};
  std::vector<Message> out;
  for (const Json& row : messages.as_array()) {
    const std::string where = concat(source, ": messages[", out.size(), "]");
    HONE_CHECK(row.is_object(), where, " must be an object, not ", row.kind_name());
    const Json *role = row.find("role"), *content = row.find("content");
    HONE_CHECK(role && role->is_string(), where, ".role must be one of system, user, assistant, tool");
    HONE_CHECK(std::find(roles.begin(), roles.end(), role->as_string()) != roles.end(), where, ".role is '",
               role->as_string(), "'; known: system, user, assistant, tool");
    const bool calls = row.find("tool_calls") != nullptr;  // a message of tool calls need not say anything
    HONE_CHECK((content && content->is_string()) || (calls && (!content || content->is_null())), where,
               ".content must be a string, not ", content ? content->kind_name() : "missing");
    Message message{role->as_string(), content && content->is_string() ? content->as_string() : "", Json()};
    for (const auto& [key, value] : row.as_object()) {
      if (key == "role" || (key == "content" && value.is_string())) continue;
      if (message.extra.is_null()) message.extra = Json(JsonObject{});
      message.extra.set(key, value);
    }
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace hone
