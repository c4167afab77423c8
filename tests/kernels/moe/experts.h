#pragma once
// Choices of experts and their dispatch, for tests of the ops of a mixture of experts.
#include "kernels/moe/dispatch.h"
#include "kernels/quant/quantized_matrix.h"
#include "tests/kernels/op_check.h"

namespace hone::test {

// k different experts of E for each token, uneven: low ids are chosen more often. A function of the seed.
inline Ids random_experts(int64_t tokens, int64_t k, int64_t E, uint64_t seed) {
  Ids out({tokens, k});
  Rng rng(seed);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < k; ++c) {
      const auto taken = [&](int32_t e) {
        for (int64_t i = 0; i < c; ++i)
          if (out[t * k + i] == e) return true;
        return false;
      };
      int32_t e = 0;
      do {
        e = static_cast<int32_t>(rng.below(1 + rng.below(static_cast<uint64_t>(E))));
      } while (taken(e));
      out[t * k + c] = e;
    }
  return out;
}

// The order of choices as moe_dispatch gives it.
struct Dispatched {
  Ids order, places, offsets;
  Dispatched(const Ids& experts, int64_t E, int64_t capacity = 0)
      : order({experts.size()}), places({experts.tensor().dim(0), experts.tensor().dim(1)}), offsets({E + 1}) {
    moe_dispatch(cpu(),
                 {.order = order, .places = places, .offsets = offsets, .experts = experts, .capacity = capacity});
  }
};

// The rows of all experts, quantized as one matrix, as one matrix per expert.
inline QuantizedMatrix as_experts(QuantizedMatrix rows, int64_t E) {
  const int64_t N = rows.values.dim(0) / E;
  return {rows.values.view({E, N, rows.values.dim(1)}), rows.scales.view({E, N}), rows.format};
}

}  // namespace hone::test
