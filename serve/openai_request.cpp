#include "serve/openai_request.h"

#include <algorithm>
#include <set>

#include "serve/request_fields.h"

namespace hone {
namespace {

constexpr int64_t kMostLogprobs = 64;
constexpr size_t kMostStops = 64;
constexpr size_t kMostIds = 1024;  // of logit_bias and stop_token_ids: every draw looks at all of them
constexpr int64_t kMostStreamedEcho = int64_t{2} << 20;  // bytes; all of it is sent at once

// What a token usually takes in an answer, in bytes: its text; what goes with its log-prob; and with each likeliest id
// beside it.
constexpr int64_t kTokenBytes = 48, kLogprobBytes = 112, kTopBytes = 48, kChatLogprobBytes = 176, kChatTopBytes = 112;

// The bounds of settings, as errors that name the member.
class BoundsCheck : public Fields {
 public:
  void value(const char*, bool&, const char*) override {}
  void value(const char*, int64_t&, const char*) override {}
  void value(const char*, double&, const char*) override {}
  void value(const char*, std::string&, const char*) override {}
  void value(const char*, std::vector<int64_t>&, const char*) override {}
  void value(const char*, std::vector<double>&, const char*) override {}
  void value(const char*, std::vector<std::string>&, const char*) override {}
  void table(const char*, const std::function<void(Fields&)>& fields, const char*) override { fields(*this); }
  void tables(const char* key, size_t count, const std::function<void(size_t)>&,
              const std::function<void(size_t, Fields&)>& item, const char*) override {
    outer_ = key;
    for (size_t i = 0; i < count; ++i) item(i, *this);
    outer_ = nullptr;
  }
  void require(const char* key, bool fact, const std::string& message) override {
    if (!fact) throw HttpError(400, outer_ ? concat(outer_, ": ", message) : message, outer_ ? outer_ : key);
  }
  bool reading() const override { return false; }

 private:
  const char* outer_ = nullptr;
};

int32_t token_id(const Json& id, const ServedModel& model, const std::string& name) {
  const bool whole = id.is_int();
  if (!whole || id.as_int() < 0 || id.as_int() >= model.vocab_size)
    throw HttpError(
        400,
        concat(name, ": ", short_echo(id.dump()), " is no token id; they are whole numbers below ", model.vocab_size),
        name);
  return static_cast<int32_t>(id.as_int());
}

void take_model(RequestFields& members, const ServedModel& model) {
  const Json* name = members.find("model");
  if (!name) return;
  if (!name->is_string()) throw HttpError(400, concat("model must be a string, not ", name->kind_name()), "model");
  if (std::find(model.names.begin(), model.names.end(), name->as_string()) == model.names.end())
    throw HttpError(
        404,
        concat("there is no model '", short_echo(name->as_string()), "' here; there is '", model.names.front(), "'"),
        "model", "model_not_found");
}

void take_stop(RequestFields& members, const ServedModel& model, SamplingParams& sampling) {
  if (const Json* stop = members.find("stop")) {
    const JsonArray one{*stop};
    for (const Json& text : stop->is_array() ? stop->as_array() : one) {
      if (!text.is_string() || text.as_string().empty())
        throw HttpError(400, "stop must be a string or a list of strings, none of them empty", "stop");
      sampling.stop.push_back(text.as_string());
    }
    if (sampling.stop.size() > kMostStops)
      throw HttpError(400, concat("stop has ", sampling.stop.size(), " strings; ", kMostStops, " are taken"), "stop");
    if (!model.tokenizer)
      throw HttpError(
          400, "the model's folder has no tokenizer, so that there are no stop strings; stop_token_ids may serve",
          "stop");
  }
  if (const Json* ids = members.find("stop_token_ids")) {
    if (!ids->is_array())
      throw HttpError(400, concat("stop_token_ids must be a list of token ids, not ", ids->kind_name()),
                      "stop_token_ids");
    if (ids->as_array().size() > kMostIds)
      throw HttpError(400, concat("stop_token_ids has ", ids->as_array().size(), " ids; ", kMostIds, " are taken"),
                      "stop_token_ids");
    for (const Json& id : ids->as_array()) sampling.stop_ids.push_back(token_id(id, model, "stop_token_ids"));
  }
}

void take_logit_bias(RequestFields& members, const ServedModel& model, SamplingParams& sampling) {
  const Json* biases = members.find("logit_bias");
  if (!biases) return;
  if (!biases->is_object())
    throw HttpError(400, concat("logit_bias must be an object {\"token id\": bias}, not ", biases->kind_name()),
                    "logit_bias");
  if (biases->as_object().size() > kMostIds)
    throw HttpError(400, concat("logit_bias has ", biases->as_object().size(), " tokens; ", kMostIds, " are taken"),
                    "logit_bias");
  std::set<int32_t> named;
  for (const auto& [key, bias] : biases->as_object()) {
    const bool number = !key.empty() && key.size() <= 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!number || !bias.is_number())
      throw HttpError(
          400, concat("logit_bias: '", short_echo(key), "': ", short_echo(bias.dump()), " is no bias of a token id"),
          "logit_bias");
    const int32_t id = token_id(Json(static_cast<int64_t>(std::stoll(key))), model, "logit_bias");
    if (!named.insert(id).second) throw HttpError(400, concat("logit_bias names token ", id, " twice"), "logit_bias");
    sampling.logit_bias.push_back({id, bias.as_double()});
  }
}

void take_stream(RequestFields& members, OpenAiRequest& out) {
  members.take("stream", out.stream);
  const Json* options = members.find("stream_options");
  if (!options) return;
  if (!out.stream) throw HttpError(400, "stream_options goes with stream = true alone", "stream_options");
  if (!options->is_object()) throw HttpError(400, "stream_options must be an object", "stream_options");
  RequestFields inner(*options);
  inner.take("include_usage", out.include_usage);
  inner.ignore({"include_obfuscation"});
  inner.finish();
}

// What both kinds of request may say.
void read_common_fields(RequestFields& members, const ServedModel& model, OpenAiRequest& out) {
  SamplingParams& s = out.sampling;
  take_model(members, model);
  take_stream(members, out);
  members.take("n", out.n);
  if (out.n < 1) throw HttpError(400, concat("n is ", out.n, ", it must be positive"), "n");
  members.take("temperature", s.temperature);
  members.take("top_p", s.top_p);
  members.take("top_k", s.top_k);
  if (s.top_k == -1) s.top_k = 0;  // vLLM's word for all
  members.take("min_p", s.min_p);
  members.take("presence_penalty", s.presence_penalty);
  members.take("frequency_penalty", s.frequency_penalty);
  members.take("repetition_penalty", s.repetition_penalty);
  members.take("min_tokens", s.min_tokens);
  members.take("ignore_eos", s.ignore_eos);
  members.take("return_token_ids", out.return_token_ids);
  s.seed = model.seed;
  out.seeded = members.find("seed") != nullptr;
  members.take("seed", s.seed);
  take_stop(members, model, s);
  take_logit_bias(members, model, s);
  members.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
}

int64_t bytes_per_token(const OpenAiRequest& request) {
  if (!request.logprobs) return kTokenBytes;
  const int64_t top = request.top_logprobs;
  return kTokenBytes + (request.chat ? kChatLogprobBytes + top * kChatTopBytes : kLogprobBytes + top * kTopBytes);
}

// Of the prompts where they are echoed, to each of their replies.
int64_t echo_bytes(const OpenAiRequest& request) {
  int64_t out = 0;
  if (!request.echo && !request.return_token_ids) return out;
  const int64_t each = request.logprobs && request.echo ? bytes_per_token(request) : 0;
  for (const OpenAiPrompt& prompt : request.prompts)
    out += (request.echo ? std::ssize(prompt.text) : 0) +
           std::ssize(prompt.ids) * (each + (request.return_token_ids ? 8 : 0));
  return out * request.n;
}

void check_answer(const OpenAiRequest& request, const ServedModel& model, const std::string& max_tokens_name) {
  const int64_t bytes = request.answer_bytes(model);
  const char* param = request.logprobs ? (request.chat ? "top_logprobs" : "logprobs")
                      : request.n > 1  ? "n"
                                       : max_tokens_name.c_str();
  if (bytes > model.max_answer_bytes)
    throw HttpError(400,
                    concat("the answer may have ", bytes >> 20, " MB, this server's bound is ",
                           model.max_answer_bytes >> 20, " MB (--max-answer-bytes): lower n, ", max_tokens_name, ", ",
                           request.chat ? "top_logprobs" : "logprobs, echo", " or the number of prompts"),
                    param, "answer_too_long");
  if (request.stream && echo_bytes(request) > kMostStreamedEcho)
    throw HttpError(400,
                    concat("echo is ", echo_bytes(request), " bytes to be sent at once, a stream takes ",
                           kMostStreamedEcho, ": lower n or logprobs, or ask without stream"),
                    "echo");
}

// Once the prompts and max_tokens are known.
void check(const OpenAiRequest& request, const ServedModel& model, const std::string& prompt_name,
           const std::string& max_tokens_name) {
  SamplingParams sampling = request.sampling;
  const bool nothing_drawn = sampling.max_tokens == 0 && request.echo;
  if (nothing_drawn) sampling.max_tokens = std::max<int64_t>(1, sampling.min_tokens);
  BoundsCheck bounds;
  try {
    sampling.fields(bounds);
  } catch (HttpError& error) {
    if (error.param == "max_tokens") error.param = max_tokens_name;
    throw;
  }
  if (request.prompts.size() > static_cast<size_t>(model.max_pending_completions) ||
      request.n > model.max_pending_completions || request.num_replies() > model.max_pending_completions)
    throw HttpError(400,
                    concat("n = ", request.n, " replies to each of ", request.prompts.size(),
                           " prompts; this server takes ", model.max_pending_completions, " replies at once"),
                    "n");
  const int64_t most = std::min(model.max_positions, model.kv_cache_tokens);
  for (const OpenAiPrompt& prompt : request.prompts) {
    const auto size = static_cast<int64_t>(prompt.ids.size());
    if (size == 0) throw HttpError(400, concat(prompt_name, " has no tokens"), prompt_name);
    if (size >= most + nothing_drawn)
      throw HttpError(400,
                      concat(prompt_name, " has ", size, " tokens; the model takes ", most, " together with the reply"),
                      prompt_name, "context_length_exceeded");
    if (const int64_t together = std::min(size + request.sampling.max_tokens, model.max_positions);
        together > model.kv_cache_tokens)
      throw HttpError(400,
                      concat(prompt_name, " and ", max_tokens_name, " are ", together,
                             " tokens; the server has room for ", model.kv_cache_tokens),
                      prompt_name, "context_length_exceeded");
  }
  check_answer(request, model, max_tokens_name);
}

std::vector<int32_t> ids_of(const JsonArray& ids, const ServedModel& model) {
  std::vector<int32_t> out;
  out.reserve(ids.size());
  for (const Json& id : ids) out.push_back(token_id(id, model, "prompt"));
  return out;
}

// A string, a list of strings, a list of ids, or a list of lists of ids.
void take_prompt(RequestFields& members, const ServedModel& model, OpenAiRequest& out) {
  bool special = true;
  members.take("add_special_tokens", special);
  const Json* prompt = members.find("prompt");
  if (!prompt) throw HttpError(400, "prompt is missing", "prompt");
  const auto add_text = [&](const std::string& text) {
    if (!model.tokenizer)
      throw HttpError(400, "the model's folder has no tokenizer: prompt must be token ids", "prompt");
    out.prompts.push_back({text, special ? model.tokenizer->encode_document(text) : model.tokenizer->encode(text)});
  };
  const auto add_ids = [&](const JsonArray& ids) {
    OpenAiPrompt given{{}, ids_of(ids, model)};
    try {
      if (model.tokenizer) given.text = model.tokenizer->decode(given.ids);
    } catch (const Error& error) {
      throw HttpError(400, concat("prompt: ", error.what()), "prompt");
    }
    out.prompts.push_back(std::move(given));
  };
  const auto wrong = [] {
    return HttpError(400, "prompt must be a string, a list of strings, a list of token ids, or a list of such lists",
                     "prompt");
  };
  if (prompt->is_string()) return add_text(prompt->as_string());
  if (!prompt->is_array() || prompt->as_array().empty()) throw wrong();
  const JsonArray& items = prompt->as_array();
  if (items.front().is_number()) return add_ids(items);
  for (const Json& item : items) {
    if (item.is_string() == items.front().is_array() || !(item.is_string() || item.is_array())) throw wrong();
    item.is_string() ? add_text(item.as_string()) : add_ids(item.as_array());
  }
}

// A message's content may be a list of parts, of which those that are text are joined.
Json plain_messages(const Json& messages) {
  if (!messages.is_array()) return messages;
  Json out = messages;
  size_t i = 0;
  for (Json& message : out.array_ref()) {
    const std::string name = concat("messages[", i++, "].content");
    const Json* content = message.is_object() ? message.find("content") : nullptr;
    if (!content || !content->is_array()) continue;
    std::string text;
    for (const Json& part : content->as_array()) {
      const Json *kind = part.is_object() ? part.find("type") : nullptr,
                 *words = part.is_object() ? part.find("text") : nullptr;
      if (!kind || *kind != Json("text") || !words || !words->is_string())
        throw HttpError(400, concat(name, ": only parts {\"type\": \"text\", \"text\": ...} are taken"), "messages");
      text += words->as_string();
    }
    message.set("content", text);
  }
  return out;
}

void take_messages(RequestFields& members, const ServedModel& model, OpenAiRequest& out) {
  const Json* messages = members.find("messages");
  if (!messages) throw HttpError(400, "messages is missing", "messages");
  if (!model.chat)
    throw HttpError(400, "the model's folder has no tokenizer: there is no chat, only /v1/completions with token ids",
                    "messages");
  try {
    const std::vector<Message> said = parse_messages(plain_messages(*messages), "request");
    out.prompts.push_back({{}, model.chat->encode(*model.tokenizer, said, true).ids});
  } catch (const HttpError&) {
    throw;
  } catch (const Error& error) {
    throw HttpError(400, error.what(), "messages");
  }
}

}  // namespace

OpenAiRequest parse_completion(const Json& body, const ServedModel& model) {
  RequestFields members(body);
  OpenAiRequest out;
  out.sampling.max_tokens = 16;
  read_common_fields(members, model, out);
  members.take("echo", out.echo);
  members.take("max_tokens", out.sampling.max_tokens);
  if (members.find("logprobs")) {
    members.take("logprobs", out.top_logprobs);
    out.logprobs = true;
  }
  if (out.top_logprobs < 0 || out.top_logprobs > kMostLogprobs)
    throw HttpError(400, concat("logprobs is ", out.top_logprobs, ", it must be in [0, ", kMostLogprobs, "]"),
                    "logprobs");
  members.refuse("best_of", Json(out.n), "only the n replies themselves can be had");
  members.refuse("suffix", Json(""), "text cannot be filled in before a suffix");
  take_prompt(members, model, out);
  members.finish();
  check(out, model, "prompt", "max_tokens");
  return out;
}

OpenAiRequest parse_chat(const Json& body, const ServedModel& model) {
  RequestFields members(body);
  OpenAiRequest out;
  out.chat = true;
  read_common_fields(members, model, out);
  members.take("logprobs", out.logprobs);
  members.take("top_logprobs", out.top_logprobs);
  if (out.top_logprobs < 0 || out.top_logprobs > kMostLogprobs || (out.top_logprobs > 0 && !out.logprobs))
    throw HttpError(400, concat("top_logprobs must be in [0, ", kMostLogprobs, "], and goes with logprobs = true"),
                    "top_logprobs");
  members.refuse("tools", JsonArray{}, "tools are not called by this server");
  members.refuse("tool_choice", Json("none"), "tools are not called by this server");
  members.refuse("parallel_tool_calls", Json(true), "tools are not called by this server");
  members.refuse("response_format", JsonObject{{"type", "text"}}, "replies are free text");
  members.refuse("modalities", JsonArray{"text"}, "replies are text");
  out.sampling.stop_ids.insert(out.sampling.stop_ids.end(), model.chat_stop_ids.begin(), model.chat_stop_ids.end());
  take_messages(members, model, out);
  // What is left of the model's positions, and fits an answer, unless the request says less.
  const int64_t room =
      std::min(model.max_positions, model.kv_cache_tokens) - static_cast<int64_t>(out.prompts.front().ids.size());
  const int64_t fitting = model.max_answer_bytes / std::max<int64_t>(1, out.n) / bytes_per_token(out) - 1;
  out.sampling.max_tokens = std::clamp<int64_t>(fitting, 1, std::max<int64_t>(1, room));
  members.take("max_tokens", out.sampling.max_tokens);
  members.take("max_completion_tokens", out.sampling.max_tokens);
  members.finish();
  check(out, model, "messages", members.find("max_completion_tokens") ? "max_completion_tokens" : "max_tokens");
  return out;
}

int64_t OpenAiRequest::answer_bytes(const ServedModel& model) const {
  int64_t tokens = 0;
  for (const OpenAiPrompt& prompt : prompts)
    tokens += n * std::clamp<int64_t>(model.max_positions - std::ssize(prompt.ids), 0, sampling.max_tokens);
  return echo_bytes(*this) + tokens * bytes_per_token(*this);
}

std::vector<GenerationRequest> OpenAiRequest::requests(uint64_t first_id) const {
  std::vector<GenerationRequest> out;
  for (const OpenAiPrompt& prompt : prompts) {
    const uint64_t i = out.size();
    out.push_back({.prompt = prompt.ids,
                   .n = n,
                   .id = seeded ? i : first_id + i,
                   .sampling = sampling,
                   .top_logprobs = top_logprobs,
                   .prompt_logprobs = echo && (logprobs || sampling.max_tokens == 0)});
  }
  return out;
}

}  // namespace hone
