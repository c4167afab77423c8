#pragma once
// How far an engine's arithmetic (quantized weights, an fp8 KV cache) is from the model's own.
#include <cstdint>
#include <span>
#include <vector>

#include "rollout/engine.h"

namespace hone {

// Over the tokens of all sequences but the first token of each, which has no probability.
struct QuantizationError {
  int64_t tokens = 0;
  double max_difference = 0, mean_difference = 0;  // |model's log-prob - engine's log-prob|
  double kl = 0;                                   // mean KL(model || engine) over positions, at temperature 1
  double same_top = 0;                             // fraction of positions where both have the same most likely id
  double perplexity = 0, engine_perplexity = 0;
};

// Each sequence is one pass of both models. Throws if a sequence is empty or longer than the model's positions, or if
// no sequence has a second token.
QuantizationError quantization_error(Context& context, Model& model, const EngineConfig& config,
                                     std::span<const std::vector<int32_t>> sequences);

}  // namespace hone
