#include "core/chat.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/jinja.h"
#include "core/suggest.h"

namespace hone {

using Pieces = std::vector<ChatPiece>;

// What a format's name stands for, and what it took from the tokenizer.
struct ChatParts {
  struct Style {
    std::string_view name;
    void (*write)(const ChatParts&, const std::vector<Message>&, bool add_generation_prompt, Pieces&);
    std::vector<std::string> needs;  // tokens that the vocabulary must have
    std::string turn_end;            // the token that ends an assistant's turn, "" for none of the format's own
  };
  const Style* style = nullptr;
  std::optional<JinjaTemplate> chat;
  std::string bos, eos, pad;
  std::string document_bos;            // bos, if the tokenizer begins documents with it
  std::vector<std::string> turn_ends;  // tokens that end a generation
  int64_t today = 0;
};

namespace {

void write_chatml(const ChatParts&, const std::vector<Message>& messages, bool add_generation_prompt, Pieces& out) {
  for (const Message& m : messages) {
    out.push_back({"<|im_start|>" + m.role + "\n", false});
    out.push_back({m.content + "<|im_end|>", m.role == "assistant"});
    out.push_back({"\n", false});
  }
  if (add_generation_prompt) out.push_back({"<|im_start|>assistant\n", false});
}

void write_llama3(const ChatParts& format, const std::vector<Message>& messages, bool add_generation_prompt, Pieces& out) {
  const auto header = [](const std::string& role) { return "<|start_header_id|>" + role + "<|end_header_id|>\n\n"; };
  out.push_back({format.bos, false});
  for (const Message& m : messages) {
    out.push_back({header(m.role), false});
    out.push_back({m.content + "<|eot_id|>", m.role == "assistant"});
  }
  if (add_generation_prompt) out.push_back({header("assistant"), false});
}

void write_plain(const ChatParts& format, const std::vector<Message>& messages, bool, Pieces& out) {
  out.push_back({format.document_bos, false});
  for (const Message& m : messages) {
    const bool assistant = m.role == "assistant";
    out.push_back({m.content + (assistant ? format.eos : "\n"), assistant});
  }
}

// What a template makes of the first messages of a conversation.
class Turns {
 public:
  Turns(const JinjaTemplate& chat, const Json& variables, int64_t today) : chat_(chat), variables_(variables), today_(today) {}

  std::string text(size_t messages, bool add_generation_prompt) const {
    Json some = variables_;
    JsonArray all = variables_.at("messages").as_array();
    all.resize(messages);
    some.set("messages", Json(std::move(all)));
    some.set("add_generation_prompt", add_generation_prompt);
    return chat_.render(some, today_).text;
  }

 private:
  const JinjaTemplate& chat_;
  const Json& variables_;
  int64_t today_;
};

bool shortened(std::string& text, const std::string& end) {
  if (end.empty() || !text.ends_with(end)) return false;
  text.resize(text.size() - end.size());
  return true;
}

void add_text(Pieces& out, std::string_view text, bool assistant) {
  if (!text.empty()) out.push_back({std::string(text), assistant});
}

// What follows a reply's first end of turn is the template's, not the assistant's.
size_t reply_size(std::string_view reply, const std::vector<std::string>& turn_ends) {
  size_t size = reply.size();
  for (const std::string& end : turn_ends) {
    const size_t at = reply.find(end);
    if (!end.empty() && at != reply.npos) size = std::min(size, at + end.size());
  }
  return size;
}

// Replies are found by rendering less of the conversation: the text before a reply is what prompts for it, the text to its end what the
// conversation looks like when it ends there.
Pieces split_by_turns(const ChatParts& format, const std::vector<Message>& messages, const Json& variables, const std::string& whole) {
  const Turns turns(*format.chat, variables, format.today);
  Pieces out;
  size_t done = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const std::string before = turns.text(i, true);
    std::string after = turns.text(i + 1, false);
    if (!whole.starts_with(after)) shortened(after, format.eos);
    const bool found = whole.starts_with(before) && whole.starts_with(after) && before.size() >= done && after.size() >= before.size();
    HONE_CHECK(found, "chat template: the assistant's reply in message ", i,
               " cannot be told from the text around it, because the template renders the ",
               whole.starts_with(before) ? "conversation up to it" : "prompt before it",
               " differently when more messages follow; put {% generation %} ... {% endgeneration %} around the reply in the template, "
               "train on one reply a conversation, or choose the format chatml, llama3 or plain");
    add_text(out, std::string_view(whole).substr(done, before.size() - done), false);
    const std::string_view reply = std::string_view(whole).substr(before.size(), after.size() - before.size());
    const size_t size = reply_size(reply, format.turn_ends);
    add_text(out, reply.substr(0, size), true);
    done = before.size() + size;
  }
  add_text(out, std::string_view(whole).substr(done), false);
  return out;
}

void write_template(const ChatParts& format, const std::vector<Message>& messages, bool add_generation_prompt, Pieces& out) {
  Json variables(JsonObject{});
  JsonArray rows;
  for (const Message& m : messages) {
    Json row(JsonObject{});
    row.set("role", m.role);
    row.set("content", m.content);
    if (m.extra.is_object()) {
      for (const auto& [key, value] : m.extra.as_object()) row.set(key, value);
    }
    rows.push_back(std::move(row));
  }
  variables.set("messages", Json(std::move(rows)));
  variables.set("tools", nullptr);
  variables.set("documents", nullptr);
  variables.set("add_generation_prompt", add_generation_prompt);
  if (!format.bos.empty()) variables.set("bos_token", format.bos);
  if (!format.eos.empty()) variables.set("eos_token", format.eos);
  if (!format.pad.empty()) variables.set("pad_token", format.pad);
  const JinjaTemplate::Output whole = format.chat->render(variables, format.today);
  const bool replies = std::any_of(messages.begin(), messages.end(), [](const Message& m) { return m.role == "assistant"; });
  if (whole.generation.empty() && replies && !add_generation_prompt) {
    out = split_by_turns(format, messages, variables, whole.text);
    return;
  }
  size_t done = 0;
  for (const auto& [start, end] : whole.generation) {
    if (start < done) continue;  // inside the one before
    add_text(out, std::string_view(whole.text).substr(done, start - done), false);
    add_text(out, std::string_view(whole.text).substr(start, end - start), true);
    done = end;
  }
  add_text(out, std::string_view(whole.text).substr(done), false);
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
  const auto usable = [&](const ChatParts::Style& style) { return std::all_of(style.needs.begin(), style.needs.end(), has); };
  if (name == "auto") name = !tokenizer.chat_template().empty() ? "template" : usable(styles()[0]) ? "chatml" : "plain";
  const auto style = std::find_if(styles().begin(), styles().end(), [&](const ChatParts::Style& s) { return s.name == name; });
  if (style == styles().end()) fail("unknown chat format '", name, "'", suggestion(name, names()), " (known: ", join(names(), ", "), ")");
  for (const std::string& token : style->needs)
    HONE_CHECK(has(token), "chat format ", name, " needs the token ", token, ", which the tokenizer lacks");

  auto parts = std::make_shared<ChatParts>();
  parts->style = &*style;
  parts->today = today;
  parts->bos = tokenizer.special_token("bos_token");
  parts->eos = tokenizer.special_token("eos_token");
  parts->pad = tokenizer.special_token("pad_token");
  const std::vector<int32_t> empty_document = tokenizer.encode_document("");
  if (!empty_document.empty() && tokenizer.bos() == empty_document.front()) parts->document_bos = parts->bos;
  for (const int32_t id : tokenizer.stop_ids()) parts->turn_ends.push_back(tokenizer.token(id));
  if (name == "template") {
    HONE_CHECK(!tokenizer.chat_template().empty(), "chat format template: ", tokenizer.chat_template_source(),
               " has no chat template (tokenizer_config.json's chat_template or chat_template.jinja); choose chatml, llama3 or plain");
    parts->chat.emplace(tokenizer.chat_template(), tokenizer.chat_template_source());
  }
  ChatFormat out;
  out.parts_ = std::move(parts);
  return out;
}

Pieces ChatFormat::render(const std::vector<Message>& messages, bool add_generation_prompt) const {
  Pieces out;
  parts_->style->write(*parts_, messages, add_generation_prompt, out);
  std::erase_if(out, [](const ChatPiece& piece) { return piece.text.empty(); });
  return out;
}

ChatTokens ChatFormat::encode(const Tokenizer& tokenizer, const std::vector<Message>& messages, bool add_generation_prompt) const {
  ChatTokens out;
  for (const ChatPiece& piece : render(messages, add_generation_prompt)) {
    const std::vector<int32_t> ids = tokenizer.encode(piece.text);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.mask.resize(out.ids.size(), piece.assistant ? 1.0f : 0.0f);
  }
  return out;
}

std::vector<int32_t> ChatFormat::stop_ids(const Tokenizer& tokenizer) const {
  std::vector<int32_t> out;
  const std::string& end = parts_->style->turn_end;
  if (const auto id = tokenizer.find(end); id && !end.empty()) out.push_back(*id);
  return out;
}

std::vector<Message> parse_messages(const Json& messages, std::string_view source) {
  HONE_CHECK(messages.is_array(), source, ": messages must be a list of {\"role\", \"content\"} objects, not ", messages.kind_name());
  HONE_CHECK(!messages.as_array().empty(), source, ": messages is empty");
  static const std::array<std::string_view, 4> roles = {"system", "user", "assistant", "tool"};
  std::vector<Message> out;
  for (const Json& row : messages.as_array()) {
    const std::string where = concat(source, ": messages[", out.size(), "]");
    HONE_CHECK(row.is_object(), where, " must be an object, not ", row.kind_name());
    const Json *role = row.find("role"), *content = row.find("content");
    HONE_CHECK(role && role->is_string(), where, ".role must be one of system, user, assistant, tool");
    HONE_CHECK(std::find(roles.begin(), roles.end(), role->as_string()) != roles.end(), where, ".role is '", role->as_string(),
               "'; known: system, user, assistant, tool");
    const bool calls = row.find("tool_calls") != nullptr;  // a message of tool calls need not say anything
    HONE_CHECK((content && content->is_string()) || (calls && (!content || content->is_null())), where, ".content must be a string, not ",
               content ? content->kind_name() : "missing");
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
