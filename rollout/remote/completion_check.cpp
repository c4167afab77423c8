#include "rollout/remote/completion_check.h"

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

constexpr float kRoundingSlack = 1e-4F;  // rounding may lift a log-prob near 0 above it

void check_logp(float logp) {
  HONE_CHECK(std::isfinite(logp) && logp <= kRoundingSlack, "it claims a log-prob of ", logp,
             "; log-probs are finite and at most 0");
}

void check_id(int32_t id, int64_t vocab_size) {
  HONE_CHECK(id >= 0 && id < vocab_size, "a completion has id ", id, "; ids are in [0, ", vocab_size, ")");
}

void check_top_logprobs(const std::vector<std::vector<TokenLogp>>& rows, size_t positions,
                        const GenerationRequest& request, int64_t vocab_size) {
  HONE_CHECK(rows.empty() || (request.top_logprobs > 0 && rows.size() == positions), "it sent top_logprobs of ",
             rows.size(), " positions; the request has ", request.top_logprobs > 0 ? positions : 0);
  for (const std::vector<TokenLogp>& row : rows) {
    HONE_CHECK(std::ssize(row) <= request.top_logprobs, "it sent ", row.size(),
               " top_logprobs of a position; the request has ", request.top_logprobs);
    for (const TokenLogp& top : row) {
      check_id(top.id, vocab_size);
      check_logp(top.logp);
    }
  }
}

bool is_stop_id(int32_t id, const SamplingParams& sampling, const Tokenizer* tokenizer) {
  if (std::ranges::find(sampling.stop_ids, id) != sampling.stop_ids.end()) return true;
  if (!tokenizer || sampling.ignore_eos) return false;
  const std::vector<int32_t> stops = tokenizer->stop_ids();
  return std::ranges::find(stops, id) != stops.end();
}

// Reads the text as the engine does: special tokens have no text, and nothing is stripped.
bool has_stop_string(const CompletionOutput& completion, const SamplingParams& sampling, const Tokenizer* tokenizer) {
  if (!tokenizer || sampling.stop.empty()) return false;
  std::string text;
  for (const int32_t id : completion.ids) text += tokenizer->token_bytes(id);
  return std::ranges::any_of(
      sampling.stop, [&](const std::string& stop) { return !stop.empty() && text.find(stop) != std::string::npos; });
}

}  // namespace

void check_columns(const CompletionOutput& completion, const GenerationRequest& request, int64_t vocab_size,
                   const VersionRange& versions) {
  HONE_CHECK(std::ssize(completion.ids) <= request.sampling.max_tokens, "a completion has ", completion.ids.size(),
             " tokens; max_tokens is ", request.sampling.max_tokens);
  HONE_CHECK(completion.forced.empty() || request.sampling.thinking_budget > 0,
             "a completion has forced tokens, but the request has no thinking_budget");
  for (const int32_t id : completion.ids) check_id(id, vocab_size);
  for (const int64_t version : completion.versions)
    HONE_CHECK(version >= versions.first && version <= versions.last, "a token was sampled by version ", version,
               "; versions ", versions.first, " to ", versions.last, " were possible");
  for (const auto* column :
       {&completion.logp, &completion.truncated_logp, &completion.raw_logp, &completion.prompt_logp})
    for (const float logp : *column) check_logp(logp);
  const size_t prompt = request.prompt_logprobs ? request.prompt.size() : 0;
  HONE_CHECK(completion.prompt_logp.size() == prompt, "it sent ", completion.prompt_logp.size(),
             " prompt log-probs; the request has ", prompt);
  check_top_logprobs(completion.top_logprobs, completion.ids.size(), request, vocab_size);
  check_top_logprobs(completion.prompt_top_logprobs, prompt, request, vocab_size);
}

void check_end(const CompletionOutput& completion, const GenerationRequest& request, const RequestLimits& limits) {
  const auto size = std::ssize(completion.ids);
  const int64_t longest = std::min(request.sampling.max_tokens, limits.max_positions - std::ssize(request.prompt));
  if (completion.finish_reason == "length") {
    HONE_CHECK(size == longest, "a completion of ", size, " tokens has finish_reason length; that needs ", longest,
               " tokens");
    return;
  }
  HONE_CHECK(completion.finish_reason == "stop", "a completion has finish_reason '",
             completion.finish_reason.substr(0, 100), "', not stop or length");
  HONE_CHECK(size > request.sampling.min_tokens || size == longest, "a completion stopped after ", size,
             " tokens; min_tokens is ", request.sampling.min_tokens);
  HONE_CHECK(size > 0 && (is_stop_id(completion.ids.back(), request.sampling, limits.tokenizer) ||
                          has_stop_string(completion, request.sampling, limits.tokenizer)),
             "a completion has finish_reason stop, but neither its last id nor its text ends it");
}

}  // namespace hone
