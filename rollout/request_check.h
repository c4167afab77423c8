#pragma once
// Decides whether an engine can serve a request before anything is computed. The engine uses it, and so does a learner
// that sends requests to workers.
#include <string>

#include "rollout/engine.h"

namespace hone {

struct RequestLimits {
  int64_t vocab_size = 0, max_positions = 0;
  int64_t kv_block_size = 1, num_kv_blocks = 0;
  const Tokenizer* tokenizer = nullptr;  // may be null

  // The limits of an engine with this config.
  static RequestLimits of(const ModelShape& shape, const EngineConfig& config, const Tokenizer* tokenizer) {
    return {shape.vocab_size, shape.max_positions, config.kv_block_size, config.kv_cache_tokens / config.kv_block_size,
            tokenizer};
  }
};

// Why the request cannot be served; "" if it can.
std::string request_problem(const GenerationRequest& request, const RequestLimits& limits);
// n failed completions with `reason` as finish_reason.
std::vector<CompletionOutput> rejected_completions(const GenerationRequest& request, const std::string& reason);

}  // namespace hone
