#pragma once
// Whether an engine can serve a request: known before anything is computed, to the engine and to a learner that hands
// requests to workers.
#include <string>

#include "rollout/engine.h"

namespace hone {

struct RequestLimits {
  int64_t vocab_size = 0, max_positions = 0;
  int64_t kv_block_size = 1, num_kv_blocks = 0;
  const Tokenizer* tokenizer = nullptr;  // may be null

  // Of an engine with these settings.
  static RequestLimits of(const ModelShape& shape, const EngineConfig& config, const Tokenizer* tokenizer) {
    return {shape.vocab_size, shape.max_positions, config.kv_block_size, config.kv_cache_tokens / config.kv_block_size,
            tokenizer};
  }
};

// Why the request cannot be served; "" if it can.
std::string request_problem(const GenerationRequest& request, const RequestLimits& limits);
// n failed replies that say so.
std::vector<CompletionOutput> refused_replies(const GenerationRequest& request, const std::string& reason);

}  // namespace hone
