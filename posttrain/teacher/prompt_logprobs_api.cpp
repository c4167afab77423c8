#include "posttrain/teacher/prompt_logprobs_api.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

namespace hone {
namespace {

constexpr const char* one_vocabulary =
    "distillation compares probabilities token by token, so both need the same tokenizer";

float logprob_of(const Json& value, size_t t) {
  HONE_CHECK(value.is_number(), "token ", t, " has no log-prob");
  const double out = value.as_double();
  HONE_CHECK(std::isfinite(out) && out <= 1e-3, "the log-prob of token ", t, " is ", out,
             "; it must be a finite number of at most 0");
  return static_cast<float>(std::min(out, 0.0));
}

// A token's text without what servers spell in different ways: spaces around it.
std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Throws if the server's text of a token is surely not the student's. Parts of characters and special tokens have no
// text that could be compared.
void check_text(const Tokenizer& tokenizer, int32_t id, const std::string& theirs, size_t t) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD", by_id = "token_id:", bytes = "bytes:";
  if (theirs.starts_with(by_id)) {
    if (theirs.substr(by_id.size()) == std::to_string(id)) return;
    throw ApiRefusal(concat("token ", t, " is id ", theirs.substr(by_id.size()), " on the server and ", id,
                            " in the student's vocabulary: ", one_vocabulary));
  }
  const std::string own = tokenizer.token_bytes(id);
  const bool comparable = !theirs.empty() && !own.empty() && theirs.find(replacement) == std::string::npos &&
                          !theirs.starts_with(bytes) && !tokenizer.is_special(id) && id < tokenizer.vocab_size() &&
                          std::ranges::all_of(own, [](char c) { return c >= ' ' && c < 0x7f; });
  if (!comparable || trimmed(theirs) == trimmed(own) || theirs == tokenizer.token(id)) return;
  throw ApiRefusal(concat("token ", id, " is \"", theirs, "\" on the server and \"", own,
                          "\" in the student's vocabulary: ", one_vocabulary));
}

const Json* member(const Json& object, const char* name) {
  const Json* const found = object.find(name);
  return found && !found->is_null() ? found : nullptr;
}

void check_count(size_t count, size_t tokens) {
  if (count >= tokens) return;
  throw ApiRefusal(concat("the server returns log-probs of ", count, " tokens for a prompt of ", tokens,
                          " ids: it has another vocabulary or drops tokens; ", one_vocabulary));
}

// vLLM: choices[0].prompt_logprobs = [null, {"id": {"logprob", "rank", "decoded_token"}, ...}, ...]. An entry has the
// prompt's own token and the most likely ones.
ServedLogprobs read_vllm(const Json& response, std::span<const int32_t> ids, int64_t top, const Tokenizer& tokenizer) {
  const Json* all = member(first_choice(response), "prompt_logprobs");
  if (!all) all = member(response, "prompt_logprobs");
  if (!all) throw ApiRefusal("the server returns no prompt_logprobs");
  const JsonArray& entries = all->as_array("prompt_logprobs");
  check_count(entries.size(), ids.size());
  ServedLogprobs out{.logp = std::vector<float>(ids.size()), .top = {}};
  if (top > 0) out.top.resize(ids.size());
  for (size_t t = 1; t < ids.size(); ++t) {
    const Json* const own = entries[t].is_object() ? entries[t].find(std::to_string(ids[t])) : nullptr;
    if (!own)
      throw ApiRefusal(concat("prompt_logprobs of token ", t, " lack its id ", ids[t],
                              ": the server has another vocabulary; ", one_vocabulary));
    out.logp[t] = logprob_of(own->at("logprob", "prompt_logprobs"), t);
    if (const Json* text = member(*own, "decoded_token")) check_text(tokenizer, ids[t], text->as_string(), t);
    if (top == 0) continue;
    std::vector<std::pair<int32_t, float>>& likely = out.top[t];
    for (const auto& [id, value] : entries[t].as_object()) {
      const bool is_id =
          !id.empty() && id.size() < 10 && std::ranges::all_of(id, [](char c) { return c >= '0' && c <= '9'; });
      HONE_CHECK(is_id, "prompt_logprobs of token ", t, " have the key \"", id, "\", which is no token id");
      likely.emplace_back(std::stoi(id), logprob_of(value.at("logprob", "prompt_logprobs"), t));
    }
    std::ranges::sort(likely, [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    // The prompt's own token is an extra entry unless it is one of the most likely.
    if (std::ssize(likely) > top) likely.resize(static_cast<size_t>(top));
  }
  return out;
}

// The older API: choices[0].logprobs = {tokens, token_logprobs, ...} of the echoed prompt.
ServedLogprobs read_echo(const Json& response, std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  const Json* const logprobs = member(first_choice(response), "logprobs");
  const Json* const values = logprobs && logprobs->is_object() ? member(*logprobs, "token_logprobs") : nullptr;
  if (!values) throw ApiRefusal("the server returns no token_logprobs of an echoed prompt");
  const JsonArray& entries = values->as_array("token_logprobs");
  const Json* const texts = member(*logprobs, "tokens");
  check_count(entries.size(), ids.size());
  ServedLogprobs out{.logp = std::vector<float>(ids.size()), .top = {}};
  for (size_t t = 1; t < ids.size(); ++t) {
    out.logp[t] = logprob_of(entries[t], t);
    if (texts && t < texts->as_array("tokens").size() && texts->as_array("tokens")[t].is_string())
      check_text(tokenizer, ids[t], texts->as_array("tokens")[t].as_string(), t);
  }
  return out;
}

}  // namespace

PromptLogprobsApi::PromptLogprobsApi(const TeacherEndpoint& config, const Tokenizer& tokenizer)
    : config_(config), tokenizer_(tokenizer), api_(config), chosen_(config.api == "auto" ? "" : config.api) {}

ServedLogprobs PromptLogprobsApi::ask(const std::string& api, const std::vector<int32_t>& ids, int64_t top) {
  JsonObject body{{"model", config_.model}, {"prompt", Json::array(ids)}, {"temperature", 1}};
  if (api == "vllm") {
    body.emplace_back("max_tokens", 1);
    body.emplace_back("prompt_logprobs", top);
  } else {
    HONE_CHECK(top == 0,
               "the most likely tokens need a server with prompt_logprobs (api = \"vllm\"): echo returns their "
               "texts, not their ids");
    body.emplace_back("max_tokens", 0);
    body.emplace_back("echo", true);
    body.emplace_back("logprobs", 0);
  }
  ServedLogprobs out;
  api_.post("/completions", Json(std::move(body)), [&](const Json& response) {
    out = api == "vllm" ? read_vllm(response, ids, top, tokenizer_) : read_echo(response, ids, tokenizer_);
  });
  return out;
}

void PromptLogprobsApi::fail_request(const std::string& problem) const {
  fail("distill: the teacher at ", config_.base_url.substr(0, config_.base_url.find('?')), ": ", problem);
}

void PromptLogprobsApi::choose_api(const std::vector<int32_t>& ids, int64_t top) {
  std::string problems;
  for (const char* api : {"vllm", "echo"}) {
    try {
      ask(api, ids, top);
      chosen_ = api;
      return;
    } catch (const Error& error) {  // the other one may be known
      problems += concat(problems.empty() ? "" : "; ", "api = \"", api, "\": ", error.what());
    }
  }
  fail_request(problems);
}

std::vector<ServedLogprobs> PromptLogprobsApi::logprobs(std::span<const std::vector<int32_t>> sequences, int64_t top) {
  std::vector<ServedLogprobs> out(sequences.size());
  const auto longest = std::ranges::max_element(sequences, {}, [](const auto& ids) { return ids.size(); });
  if (longest == sequences.end() || longest->empty()) return out;
  if (chosen_.empty()) choose_api(*longest, top);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::string problem;
  const auto work = [&] {
    for (size_t i = next++; i < sequences.size(); i = next++) {
      if (sequences[i].empty()) continue;
      try {
        out[i] = ask(chosen_, sequences[i], top);
      } catch (const std::exception& error) {  // thrown again on the calling thread
        const std::lock_guard lock(mutex);
        if (problem.empty()) problem = error.what();
        next = sequences.size();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (int64_t t = 0; t < std::min<int64_t>(config_.concurrency, std::ssize(sequences)); ++t)
    threads.emplace_back(work);
  threads.clear();
  if (!problem.empty()) fail_request(problem);
  return out;
}

}  // namespace hone
