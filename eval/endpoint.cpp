#include "eval/endpoint.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/config/config.h"
#include "core/text/chat_settings.h"
#include "eval/continuation.h"
#include "rewards/answers/text.h"

namespace hone {
namespace {

JsonObject sampling_json(const SamplingParams& sampling, int64_t seed) {
  JsonObject out{{"max_tokens", sampling.max_tokens}, {"temperature", sampling.temperature}};
  if (sampling.temperature > 0) out.emplace_back("seed", seed);
  if (sampling.top_p < 1) out.emplace_back("top_p", sampling.top_p);
  if (sampling.top_k > 0) out.emplace_back("top_k", sampling.top_k);
  if (sampling.min_p > 0) out.emplace_back("min_p", sampling.min_p);
  if (sampling.thinking_budget > 0) out.emplace_back("thinking_budget", sampling.thinking_budget);
  if (sampling.presence_penalty != 0) out.emplace_back("presence_penalty", sampling.presence_penalty);
  if (sampling.frequency_penalty != 0) out.emplace_back("frequency_penalty", sampling.frequency_penalty);
  // vLLM's names.
  if (sampling.repetition_penalty != 1) out.emplace_back("repetition_penalty", sampling.repetition_penalty);
  if (sampling.min_tokens > 0) out.emplace_back("min_tokens", sampling.min_tokens);
  if (sampling.ignore_eos) out.emplace_back("ignore_eos", true);
  if (!sampling.stop_ids.empty()) out.emplace_back("stop_token_ids", Json::array(sampling.stop_ids));
  if (!sampling.logit_bias.empty()) {
    JsonObject biases;
    for (const LogitBias& one : sampling.logit_bias) biases.emplace_back(std::to_string(one.id), one.bias);
    out.emplace_back("logit_bias", std::move(biases));
  }
  if (!sampling.stop.empty()) out.emplace_back("stop", Json::array(sampling.stop));
  StructuredOutput structured = sampling.structured;
  if (structured.enabled()) {  // vLLM's names; a server without structured_outputs refuses the request
    JsonObject set;
    const Json all = to_json([&](Fields& f) { structured.fields(f); });
    for (const auto& [key, value] : all.as_object())
      if (value != Json("") && value != Json(false) && value != Json(JsonArray{})) set.emplace_back(key, value);
    out.emplace_back("structured_outputs", std::move(set));
  }
  return out;
}

// Servers take few stop strings; the text is cut here too.
void cut_at_stop(std::string& text, const std::vector<std::string>& stop) {
  for (const std::string& one : stop) text.resize(std::min(text.size(), text.find(one)));
}

// The logprobs of an echoed prompt.
struct EchoedTokens {
  const JsonArray &logprobs, &offsets;
  const JsonArray* top;

  static EchoedTokens of(const Json& choice) {
    const Json* found = choice.find("logprobs");
    const Json* values = found && found->is_object() ? found->find("token_logprobs") : nullptr;
    const Json* offsets = found && found->is_object() ? found->find("text_offset") : nullptr;
    if (!values || !values->is_array() || !offsets || !offsets->is_array())
      throw ApiRefusal(
          "the server returns no log-probs of a prompt (completions with echo = true and logprobs), which tasks of "
          "likelihoods need: use a server that does, or evaluate the model's folder");
    const Json* top = found->find("top_logprobs");
    HONE_CHECK(values->as_array().size() == offsets->as_array().size(), "logprobs: ", values->as_array().size(),
               " token_logprobs and ", offsets->as_array().size(), " values of text_offset");
    return {values->as_array(), offsets->as_array(), top && top->is_array() ? &top->as_array() : nullptr};
  }
  bool is_likeliest(size_t i, double logp) const {
    if (!top || i >= top->size() || !(*top)[i].is_object()) return false;
    for (const auto& [token, value] : (*top)[i].as_object())
      if (value.is_number() && value.as_double() > logp) return false;
    return true;
  }
};

// Sums the tokens that reach beyond the context, up to the end of the text.
TextScore score_of(const Json& response, const ScoredText& text) {
  const EchoedTokens tokens = EchoedTokens::of(first_choice(response));
  size_t end = text.context.size();
  while (end > 0 && is_space(text.context[end - 1])) --end;
  const int64_t begin = num_characters(std::string_view(text.context).substr(0, end)),
                length = num_characters(text.context + text.continuation);
  TextScore out;
  out.is_greedy = true;
  size_t count = 0;
  for (size_t i = 0; i < tokens.logprobs.size(); ++i) {
    const int64_t from = tokens.offsets[i].as_int("text_offset"),
                  to = i + 1 < tokens.offsets.size() ? tokens.offsets[i + 1].as_int("text_offset") : length;
    if (from >= length || to <= begin) continue;
    HONE_CHECK(tokens.logprobs[i].is_number(), "token ", i,
               " has no log-prob; a text without a context needs a server that begins prompts with a BOS token");
    const double logp = tokens.logprobs[i].as_double();
    out.logp += logp;
    out.is_greedy = out.is_greedy && tokens.is_likeliest(i, logp);
    ++count;
  }
  HONE_CHECK(count > 0, "no token of the response belongs to '", excerpt(text.continuation), "'");
  return out;
}

}  // namespace

void EndpointConfig::fields(Fields& f) {
  ModelApiConfig::fields(f);
  f("concurrency", concurrency, "requests at the same time");
  f("input_price", input_price, "price of a million prompt tokens, for the cost; 0 = none");
  f("output_price", output_price, "price of a million generated tokens, for the cost; 0 = none");
  f.require("concurrency", concurrency >= 1 && concurrency <= 1024, "concurrency must be in [1, 1024]");
  f.require("input_price", input_price >= 0 && std::isfinite(input_price), "input_price must be 0 or more");
  f.require("output_price", output_price >= 0 && std::isfinite(output_price), "output_price must be 0 or more");
}

Endpoint::Endpoint(EndpointConfig config) : config_(std::move(config)), api_(config_) {
  HONE_CHECK(!config_.model.empty(), "--model is missing: give the model's name on the server");
}

EndpointUsage Endpoint::usage() const {
  EndpointUsage out;
  static_cast<ApiUsage&>(out) = api_.usage();
  const std::lock_guard lock(mutex_);
  out.failed = failed_;
  out.first_failure = first_failure_;
  return out;
}

double Endpoint::cost(const EndpointUsage& usage) const {
  return (static_cast<double>(usage.prompt_tokens) * config_.input_price +
          static_cast<double>(usage.completion_tokens) * config_.output_price) /
         1e6;
}

void Endpoint::run_all(size_t count, const std::string& what, const std::function<std::string(size_t)>& request) {
  log::Progress progress(what, static_cast<int64_t>(count), "request");
  std::atomic<size_t> next = 0;
  size_t done = 0, failed = 0;
  std::string fatal, first;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      std::string problem, refusal;
      try {
        problem = request(i);
      } catch (const ApiRefusal& error) {
        refusal = error.what();
      }
      const std::lock_guard lock(mutex_);
      progress.update(static_cast<int64_t>(++done));
      if (!problem.empty() && failed++ == 0) first = problem;
      if (refusal.empty()) continue;
      if (fatal.empty()) fatal = refusal;
      next = count;
    }
  };
  std::vector<std::jthread> threads;
  for (int64_t t = 0; t < std::min<int64_t>(config_.concurrency, static_cast<int64_t>(count)); ++t)
    threads.emplace_back(work);
  threads.clear();
  HONE_CHECK(fatal.empty(), config_.base_url, ": ", fatal);
  HONE_CHECK(failed < count || count == 0, config_.base_url, ": all ", count, " requests failed; the first: ", first);
  if (failed == 0) return;
  log::warning("eval: ", failed, " of ", count, " requests to ", config_.base_url,
               " failed; their problems have no figures. The first: ", first);
  failed_ += static_cast<int64_t>(failed);
  if (first_failure_.empty()) first_failure_ = first;
}

// The messages of a task, with the tools and variables of its row.
static JsonObject chat_json(const Task& task, const Json& kwargs) {
  std::vector<Message> messages = task.messages;
  attach_row_variables(messages, task.columns, task.id);
  Json out = conversation_json(messages), all = kwargs;
  if (const Json* own = out.find(kKwargsMember))
    for (const auto& [name, value] : own->as_object()) all.set(name, value);
  if (!all.as_object().empty()) out.set(kKwargsMember, all);
  return out.as_object();
}

// The message of a choice if it has more than a text: reasoning (DeepSeek's and vLLM's name), or calls of tools.
static std::vector<Message> message_of(const Json& choice, const std::string& text) {
  Json extra = JsonObject{};
  const Json& message = choice.at("message", "choice");
  for (const char* name : {"reasoning_content", "tool_calls"})
    if (const Json* value = message.find(name); value && *value != Json("") && *value != Json(JsonArray{}))
      if (!value->is_null()) extra.set(name, *value);
  if (extra.as_object().empty()) return {};
  return {{"assistant", text, std::move(extra)}};
}

EndpointCompletion Endpoint::complete_one(const Task& task, const EndpointSampling& sampling, size_t index) {
  const bool chat = !task.messages.empty();
  JsonObject body = chat ? chat_json(task, sampling.chat_template_kwargs) : JsonObject{{"prompt", task.prompt}};
  body.emplace_back("model", config_.model);
  for (auto& member : sampling_json(sampling.sampling, sampling.sampling.seed + static_cast<int64_t>(index)))
    body.push_back(std::move(member));
  EndpointCompletion out;
  api_.post(chat ? "/chat/completions" : "/completions", Json(std::move(body)), [&](const Json& response) {
    const Json& choice = first_choice(response);
    out = {.completion = {.ids = {}, .text = choice_text(choice, chat), .finish_reason = choice_finish_reason(choice)},
           .num_tokens = usage_count(response, "completion_tokens")};
    cut_at_stop(out.completion.text, sampling.sampling.stop);
    if (chat) out.completion.messages = message_of(choice, out.completion.text);
  });
  return out;
}

std::vector<EndpointReply> Endpoint::complete(std::span<const Task> tasks, const EndpointSampling& sampling,
                                              const std::string& what) {
  const auto each = static_cast<size_t>(sampling.num_completions);
  std::vector<EndpointReply> out(tasks.size());
  for (EndpointReply& reply : out) reply.completions.resize(each);
  std::mutex mutex;
  run_all(tasks.size() * each, what, [&](size_t i) -> std::string {
    const Task& task = tasks[i / each];
    EndpointReply& reply = out[i / each];
    try {
      EndpointCompletion one = complete_one(task, sampling, i % each);
      const std::lock_guard lock(mutex);
      reply.completions[i % each] = std::move(one.completion);
      reply.completion_tokens += one.num_tokens;
      return "";
    } catch (const ApiRefusal&) {
      throw;
    } catch (const Error& error) {
      std::string problem = task.id + ": " + error.what();
      const std::lock_guard lock(mutex);
      if (reply.problem.empty()) reply.problem = error.what();
      return problem;
    }
  });
  return out;
}

std::vector<TextScore> Endpoint::score(std::span<const ScoredText> texts) {
  std::vector<TextScore> out(texts.size());
  run_all(texts.size(), "eval", [&](size_t i) -> std::string {
    const ScoredText& text = texts[i];
    const Json body = JsonObject{{"model", config_.model}, {"prompt", text.context + text.continuation},
                                 {"max_tokens", 1},        {"temperature", 0},
                                 {"logprobs", 1},          {"echo", true}};
    try {
      api_.post("/completions", body, [&](const Json& response) { out[i] = score_of(response, text); });
      return "";
    } catch (const ApiRefusal&) {
      throw;
    } catch (const Error& error) {
      out[i].problem = error.what();
      return text.where + ": " + error.what();
    }
  });
  return out;
}

}  // namespace hone
