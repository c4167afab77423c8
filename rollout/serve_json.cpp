#include "rollout/serve_json.h"

#include <algorithm>
#include <cstdio>

#include "core/unicode.h"

namespace hone {
namespace {

std::string bytes_of(const Tokenizer* tokenizer, int32_t id) {
  if (!tokenizer) return {};
  return tokenizer->is_special(id) ? tokenizer->token(id) : tokenizer->token_bytes(id);
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// The columns of a completion's "logprobs".
struct Columns {
  JsonArray tokens, token_logprobs, top_logprobs, text_offset;

  // OpenAI's object of the likeliest: by their text, best first, and the token itself where it is not one of them.
  static Json likeliest(const ServedModel& model, int32_t id, float logp, std::span<const TokenLogp> top) {
    Json out(JsonObject{});
    const auto add = [&](const TokenLogp& one) {
      const std::string text = token_text(model.tokenizer, one.id);
      if (!out.find(text)) out.set(text, one.logp);
    };
    for (const TokenLogp& one : top) add(one);
    add({id, logp});
    return out;
  }

  void add(const ServeRequest& request, const ServedModel& model, int32_t id, Json logp, std::span<const TokenLogp> top, int64_t offset) {
    tokens.emplace_back(token_text(model.tokenizer, id));
    const bool known = !logp.is_null();
    if (request.top_logprobs == 0)
      top_logprobs.emplace_back();
    else
      top_logprobs.push_back(known ? likeliest(model, id, static_cast<float>(logp.as_double()), top) : Json());
    token_logprobs.push_back(std::move(logp));
    text_offset.emplace_back(offset);
  }
};

std::span<const TokenLogp> top_of(const std::vector<std::vector<TokenLogp>>& rows, size_t i) {
  return i < rows.size() ? std::span<const TokenLogp>(rows[i]) : std::span<const TokenLogp>();
}

bool is_forced(const Reply& reply, size_t i) { return i < reply.forced.size() && reply.forced[i]; }

Json finish_of(const Reply& reply, const ChoicePart& part) { return part.last ? Json(reply.finish_reason) : Json(); }

// A token with its log-prob as chats have it.
JsonObject chat_token(const ServedModel& model, int32_t id, Json logp) {
  JsonArray bytes;
  for (const char c : bytes_of(model.tokenizer, id)) bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return {{"token", token_text(model.tokenizer, id)}, {"logprob", std::move(logp)}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::string token_text(const Tokenizer* tokenizer, int32_t id) {
  if (!tokenizer) return concat("token_id:", id);
  std::string bytes = bytes_of(tokenizer, id);
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  std::string out = "bytes:";
  for (const char c : bytes) {
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += code;
  }
  return out;
}

Json completion_choice(const ServeRequest& request, const ServePrompt& prompt, const ServedModel& model, const Reply& reply, const ChoicePart& part,
                       int64_t& text_offset) {
  const bool echoed = request.echo && part.first;
  Json out = JsonObject{{"index", part.index}, {"text", (echoed ? prompt.text : "") + part.text}, {"logprobs", nullptr}};
  if (request.logprobs) {
    Columns columns;
    const int64_t prompt_end = num_characters(prompt.text);
    for (size_t i = 0; echoed && i < prompt.ids.size(); ++i) {
      const std::string bytes = bytes_of(model.tokenizer, prompt.ids[i]);
      Json logp = i == 0 || i >= reply.prompt_logp.size() ? Json() : Json(reply.prompt_logp[i]);
      columns.add(request, model, prompt.ids[i], std::move(logp), top_of(reply.prompt_top_logprobs, i), text_offset);
      const bool added = i == 0 && !prompt.text.starts_with(bytes);  // a token that the tokenizer puts before a document
      if (!added) text_offset = std::min(prompt_end, text_offset + num_characters(bytes));
    }
    if (echoed) text_offset = prompt_end;
    for (size_t i = part.begin; i < part.end; ++i) {
      const int32_t id = reply.ids[i];
      columns.add(request, model, id, is_forced(reply, i) ? Json() : Json(reply.raw_logp[i]), top_of(reply.top_logprobs, i), text_offset);
      if (model.tokenizer && !model.tokenizer->is_special(id)) text_offset += num_characters(bytes_of(model.tokenizer, id));
    }
    out.set("logprobs", JsonObject{{"tokens", std::move(columns.tokens)},
                                   {"token_logprobs", std::move(columns.token_logprobs)},
                                   {"top_logprobs", request.top_logprobs > 0 ? Json(std::move(columns.top_logprobs)) : Json()},
                                   {"text_offset", std::move(columns.text_offset)}});
  }
  out.set("finish_reason", finish_of(reply, part));
  if (request.return_token_ids) {
    out.set("token_ids", Json::array(std::span(reply.ids).subspan(part.begin, part.end - part.begin)));
    if (part.first) out.set("prompt_token_ids", Json::array(prompt.ids));
  }
  return out;
}

Json chat_choice(const ServeRequest& request, const ServedModel& model, const Reply& reply, const ChoicePart& part, bool streamed) {
  Json message(JsonObject{});
  if (!streamed || part.first) message.set("role", "assistant");
  if (!streamed || part.first || !part.text.empty()) message.set("content", part.text);
  if (!streamed) message.set("refusal", nullptr);
  Json out = JsonObject{{"index", part.index}, {streamed ? "delta" : "message", std::move(message)}, {"logprobs", nullptr}};
  if (request.logprobs) {
    JsonArray content;
    for (size_t i = part.begin; i < part.end; ++i) {
      Json token = chat_token(model, reply.ids[i], is_forced(reply, i) ? Json(0.0) : Json(reply.raw_logp[i]));
      JsonArray top;
      for (const TokenLogp& one : top_of(reply.top_logprobs, i)) top.emplace_back(chat_token(model, one.id, one.logp));
      token.set("top_logprobs", std::move(top));
      content.push_back(std::move(token));
    }
    out.set("logprobs", JsonObject{{"content", std::move(content)}, {"refusal", nullptr}});
  }
  out.set("finish_reason", finish_of(reply, part));
  if (request.return_token_ids) out.set("token_ids", Json::array(std::span(reply.ids).subspan(part.begin, part.end - part.begin)));
  return out;
}

Json answer_json(const ServeRequest& request, const ServedModel& model, const std::string& id, int64_t created, JsonArray choices, Json usage,
                 bool streamed) {
  const char* object = !request.chat ? "text_completion" : streamed ? "chat.completion.chunk" : "chat.completion";
  Json out = JsonObject{{"id", id}, {"object", object}, {"created", created}, {"model", model.names.front()}, {"choices", std::move(choices)}};
  if (!usage.is_null() || request.include_usage) out.set("usage", std::move(usage));
  return out;
}

Json usage_json(int64_t prompt_tokens, int64_t completion_tokens) {
  return JsonObject{{"prompt_tokens", prompt_tokens}, {"completion_tokens", completion_tokens}, {"total_tokens", prompt_tokens + completion_tokens}};
}

}  // namespace hone
