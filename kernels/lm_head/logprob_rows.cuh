#pragma once
// A block of rows of lm_head as its kernels see it. Only .cu and .cuh files include it.
#include "kernels/lm_head/internal.h"
#include "kernels/lm_head/logsumexp.cuh"

namespace hone {

// Device pointers of a HeadRows.
struct HeadRowsView {
  const int32_t* targets;
  const float *dlogp, *dentropy;
  float *logp, *lse, *entropy, *hit;
  float2* chunks;
  float *chunk_weighted, *target_z, *guess, *scale;
  float inv_temperature, z_loss;
  int num_chunks;

  explicit HeadRowsView(const HeadRows& rows)
      : targets(numbers<const int32_t>(rows.targets)),
        dlogp(numbers<const float>(rows.dlogp)),
        dentropy(numbers<const float>(rows.dentropy)),
        logp(numbers<float>(rows.logp)),
        lse(numbers<float>(rows.lse)),
        entropy(numbers<float>(rows.entropy)),
        hit(numbers<float>(rows.hit)),
        chunks(numbers<float2>(rows.chunks)),
        chunk_weighted(numbers<float>(rows.chunk_weighted)),
        target_z(numbers<float>(rows.target_z)),
        guess(numbers<float>(rows.guess)),
        scale(numbers<float>(rows.scale)),
        inv_temperature(rows.inv_temperature),
        z_loss(rows.z_loss),
        num_chunks(rows.chunks ? static_cast<int>(rows.chunks.dim(1) / 2) : 0) {}

  // dLoss/dlse of the z-loss.
  __device__ float dlse(int row) const { return 2 * z_loss * fabsf(dlogp[row]) * lse[row]; }
  // The factor that turns exp(z - max of the chunk) into exp(z - guess).
  __device__ float from_chunk(float max, int row) const { return exp_approx(fminf(max - guess[row], 80)); }
};

// Gradient of one row (formulas: kernels/lm_head/logprob.h).
struct RowGradient {
  float dlogp, dentropy, lse, entropy, by_p, inv_temperature;

  __device__ RowGradient(const HeadRowsView& rows, int row)
      : dlogp(rows.dlogp[row]),
        dentropy(rows.dentropy ? rows.dentropy[row] : 0),
        lse(rows.lse[row]),
        entropy(rows.dentropy ? rows.entropy[row] : 0),
        by_p(rows.dlse(row) - dlogp),
        inv_temperature(rows.inv_temperature) {}
  __device__ float dlogit(float logit, bool target) const {
    const float log_p = logit * inv_temperature - lse, p = exp_approx(log_p);
    float dz = p * fmaf(-dentropy, finite_log(log_p) + entropy, by_p);
    if (target) dz += dlogp;
    return dz * inv_temperature;
  }
};

}  // namespace hone
