#pragma once
// The vectorised passes over one row of logits that the head and the sampler make, besides log_sum_exp
// (kernels/lm_head/logsumexp.h).
#include <cstdint>

namespace hone {

// dLoss/dlogits of one row, see kernels/lm_head/logprob.h.
struct RowGradient {
  float dlogp = 0, dentropy = 0, dlse = 0;  // dlse: of the z-loss
  float lse = 0, entropy = 0, inv_temperature = 1;
  int32_t target = 0;
};
// logits [count] become their gradient.
void head_row_gradient(float* logits, int64_t count, const RowGradient& gradient);

// weights[v] = exp(logits[v] * inv_temperature - max).
void head_row_weights(float* weights, const float* logits, int64_t count, float inv_temperature, float max);

}  // namespace hone
