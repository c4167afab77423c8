#pragma once
// What the CUDA bodies of the router and of its losses share: a token's scores, computed by one warp. Only .cu files
// include it.
#include "kernels/cuda/cuda.cuh"
#include "kernels/moe/router.h"

namespace hone {

inline constexpr int router_warps = 4;  // tokens per thread block

__device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }

// A row of E logits, spread over a warp: lane l visits experts l, l + 32, ... Each sum adds a lane's experts in
// ascending order, then the lanes by the butterfly of warp_sum().
struct TokenLogits {
  const float* logits;
  int num_experts, lane;

  template <class Visit>
  __device__ void each(Visit visit) const {
    for (int e = lane; e < num_experts; e += 32) visit(e);
  }
  __device__ float most() const {
    float out = -INFINITY;
    each([&](int e) { out = fmaxf(out, logits[e]); });
    return warp_max(out);
  }
  // The sum of exp(logit - most).
  __device__ float exp_sum(float most) const {
    float sum = 0;
    each([&](int e) { sum += expf(logits[e] - most); });
    return warp_sum(sum);
  }
};

}  // namespace hone
