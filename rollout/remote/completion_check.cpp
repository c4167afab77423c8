#include "rollout/remote/completion_check.h"

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

constexpr float rounding = 1e-4F;  // a log-prob near 0 may be rounded above it

void check_logp(float logp) {
  HONE_CHECK(std::isfinite(logp) && logp <= rounding, "it claims a log-prob of ", logp,
             ", which is not finite and at most 0");
}

void check_id(int32_t id, int64_t vocab_size) {
  HONE_CHECK(id >= 0 && id < vocab_size, "a reply has id ", id, ", the vocabulary ", vocab_size);
}

void check_likeliest(const std::vector<std::vector<TokenLogp>>& rows, size_t places, const GenerationRequest& request,
                     int64_t vocab_size) {
  HONE_CHECK(rows.empty() || (request.top_logprobs > 0 && rows.size() == places), "it sent likeliest ids of ",
             rows.size(), " places, ", request.top_logprobs > 0 ? places : 0, " were asked for");
  for (const std::vector<TokenLogp>& row : rows) {
    HONE_CHECK(std::ssize(row) <= request.top_logprobs, "it sent ", row.size(), " likeliest ids of a place, ",
               request.top_logprobs, " were asked for");
    for (const TokenLogp& one : row) {
      check_id(one.id, vocab_size);
      check_logp(one.logp);
    }
  }
}

bool is_stop_id(int32_t id, const SamplingParams& sampling, const Tokenizer* tokenizer) {
  if (std::ranges::find(sampling.stop_ids, id) != sampling.stop_ids.end()) return true;
  if (!tokenizer || sampling.ignore_eos) return false;
  const std::vector<int32_t> stops = tokenizer->stop_ids();
  return std::ranges::find(stops, id) != stops.end();
}

// As the engine reads it: special tokens are no text, and nothing is stripped.
bool has_stop_string(const CompletionOutput& reply, const SamplingParams& sampling, const Tokenizer* tokenizer) {
  if (!tokenizer || sampling.stop.empty()) return false;
  std::string text;
  for (const int32_t id : reply.ids) text += tokenizer->token_bytes(id);
  return std::ranges::any_of(
      sampling.stop, [&](const std::string& stop) { return !stop.empty() && text.find(stop) != std::string::npos; });
}

}  // namespace

void check_columns(const CompletionOutput& reply, const GenerationRequest& request, int64_t vocab_size,
                   const VersionRange& versions) {
  HONE_CHECK(std::ssize(reply.ids) <= request.sampling.max_tokens, "a reply has ", reply.ids.size(),
             " tokens, max_tokens is ", request.sampling.max_tokens);
  HONE_CHECK(reply.forced.empty() || request.sampling.thinking_budget > 0,
             "a reply has forced tokens, and no thinking_budget was asked for");
  for (const int32_t id : reply.ids) check_id(id, vocab_size);
  for (const int64_t version : reply.versions)
    HONE_CHECK(version >= versions.first && version <= versions.last, "a token was drawn by version ", version,
               "; version ", versions.first, " to ", versions.last, " were asked for");
  for (const auto* column : {&reply.logp, &reply.truncated_logp, &reply.raw_logp, &reply.prompt_logp})
    for (const float logp : *column) check_logp(logp);
  const size_t prompt = request.prompt_logprobs ? request.prompt.size() : 0;
  HONE_CHECK(reply.prompt_logp.size() == prompt, "it sent ", reply.prompt_logp.size(), " log-probs of the prompt, ",
             prompt, " were asked for");
  check_likeliest(reply.top_logprobs, reply.ids.size(), request, vocab_size);
  check_likeliest(reply.prompt_top_logprobs, prompt, request, vocab_size);
}

void check_end(const CompletionOutput& reply, const GenerationRequest& request, const RequestLimits& limits) {
  const auto size = std::ssize(reply.ids);
  const int64_t longest = std::min(request.sampling.max_tokens, limits.max_positions - std::ssize(request.prompt));
  if (reply.finish_reason == "length") {
    HONE_CHECK(size == longest, "a reply of ", size, " tokens says that it ended by length, which is ", longest);
    return;
  }
  HONE_CHECK(reply.finish_reason == "stop", "a reply says that it ended by '", reply.finish_reason.substr(0, 100),
             "', not stop or length");
  HONE_CHECK(size > request.sampling.min_tokens || size == longest, "a reply stopped after ", size,
             " tokens, min_tokens is ", request.sampling.min_tokens);
  HONE_CHECK(size > 0 && (is_stop_id(reply.ids.back(), request.sampling, limits.tokenizer) ||
                          has_stop_string(reply, request.sampling, limits.tokenizer)),
             "a reply says that it stopped, and neither its last id nor its text ends it");
}

}  // namespace hone
