#pragma once
// How far the arithmetic of an engine (quantized weights, a cache in fp8) is from the model's own.
#include <cstdint>
#include <span>
#include <vector>

#include "rollout/engine.h"

namespace hone {

// Over the tokens of some texts, of which the first has no probability.
struct QuantizationError {
  int64_t tokens = 0;
  double max_difference = 0, mean_difference = 0;  // |log-prob by the model - by the engine|
  double kl = 0;        // mean over the places of KL(model || engine), of whole distributions at temperature 1
  double same_top = 0;  // share of the places where both find the same id likeliest
  double perplexity = 0, engine_perplexity = 0;
};

// Each sequence is one pass of both. An empty one, or one longer than the model's positions, is an Error; so are
// sequences without a second token.
QuantizationError quantization_error(Context& context, Model& model, const EngineConfig& config,
                                     std::span<const std::vector<int32_t>> sequences);

}  // namespace hone
