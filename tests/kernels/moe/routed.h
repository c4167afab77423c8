#pragma once
// Inputs of routed_experts.
#include <numeric>
#include <optional>

#include "kernels/moe/routed_experts.h"
#include "tests/kernels/moe/experts.h"
#include "tests/kernels/quant/quantized.h"

namespace hone::test {

struct RoutedCase {
  int64_t tokens, experts, choices, width, inner;
};

// Of the experts' matrices; none: f32.
inline constexpr std::optional<QuantFormat> routed_formats[] = {std::nullopt, QuantFormat::int8, QuantFormat::fp8};

// Routing with a bias, and a residual.
struct RoutedInputs {
  RoutedCase sizes;
  Floats x, logits, bias, residual, gate_up, down, gate_up_bias, down_bias;
  std::optional<Quantized> gate_up_bytes{}, down_bytes{};

  RoutedInputs(const RoutedCase& c, std::optional<QuantFormat> format)
      : sizes(c),
        x(normals({c.tokens, c.width}, 1, 1, 3)),
        logits(normals({c.tokens, c.experts}, 2, 2, 1)),
        bias(normals({c.experts}, 3)),
        residual(normals({c.tokens, c.width}, 4)),
        gate_up(normals({c.experts * 2 * c.inner, c.width}, 5)),
        down(normals({c.experts * c.width, c.inner}, 6)),
        gate_up_bias(normals({c.experts, 2 * c.inner}, 7)),
        down_bias(normals({c.experts, c.width}, 8)) {
    if (!format) return;
    gate_up_bytes.emplace(*format, gate_up);
    down_bytes.emplace(*format, down);
  }
  // y.dim(0) tokens from `first` on.
  RoutedExperts arguments(Floats& y, int64_t first = 0) const {
    const int64_t count = y.tensor().dim(0), E = sizes.experts;
    const auto matrices = [&](const Floats& numbers, const std::optional<Quantized>& bytes) {
      const Tensor w = numbers.tensor();
      if (bytes) return ExpertMatrices{.quantized = as_experts(*bytes, E)};
      return ExpertMatrices{.w = w.view({E, w.dim(0) / E, w.dim(1)})};
    };
    return {.y = y,
            .x = x.tensor().rows(first, count),
            .logits = logits.tensor().rows(first, count),
            .bias = bias,
            .gate_up = matrices(gate_up, gate_up_bytes),
            .down = matrices(down, down_bytes),
            .residual = residual.tensor().rows(first, count),
            .rule = {.scores = RouterScores::sigmoid, .normalize = true, .scale = 2.5f},
            .num_choices = sizes.choices};
  }
};

}  // namespace hone::test
