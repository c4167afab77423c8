#pragma once
// Vectorized loops over one row of logits, for the lm_head and the sampler. kernels/lm_head/logsumexp.h has
// log_sum_exp.
#include <cstdint>

namespace hone {

// The inputs of dLoss/dlogits of one row (kernels/lm_head/logprob.h).
struct RowGradient {
  float dlogp = 0, dentropy = 0, dlse = 0;  // gradient by logp, entropy and lse (z-loss)
  float lse = 0, entropy = 0, inv_temperature = 1;
  int32_t target = 0;
};
// Replaces logits [count] by their gradient.
void head_row_gradient(float* logits, int64_t count, const RowGradient& gradient);

// weights[v] = exp(logits[v] * inv_temperature - max).
void head_row_weights(float* weights, const float* logits, int64_t count, float inv_temperature, float max);

}  // namespace hone
