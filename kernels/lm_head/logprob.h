#pragma once
// The head: hidden [R, D] and w [V, D] to log-probabilities and back, by blocks of rows: [R, V] never exists. logits =
// hidden . w^T (gemm_forward's sums), z = logits * inv_temperature, lse = log sum exp z over fixed chunks of the
// vocabulary, combined in ascending order. Row-invariant.
#include "kernels/op.h"

namespace hone {

// logp[r] = z[r, targets[r]] - lse[r]; entropy[r] = lse - sum_v p_v z_v. logp, lse [R] f32 are written; entropy [R] f32
// too unless empty. targets [R] i32; one outside the vocabulary is an Error, on a GPU a logp of NaN and no gradient of
// its own.
inline constinit Op<void(Tensor logp, Tensor lse, Tensor entropy, Tensor hidden, Tensor w, Tensor targets,
                         float inv_temperature)>
    logprob_forward{"logprob_forward"};

// What a loss wants of the logits: dLoss/dlogp [R] f32, dLoss/dentropy [R] f32 or empty, and z_loss: Loss += z_loss *
// sum_r |dlogp[r]| * lse[r]^2 (so that it is averaged as the loss is).
struct LogprobGrad {
  Tensor logp, entropy;
  float z_loss = 0;
};
// dhidden [R, D] is written; dw [V, D] is added to, or empty (a frozen head). lse from forward; entropy from forward
// where its gradient is given.
//   dz[r, v] = dlogp[r] * (onehot(targets[r]) - p_v) - dentropy[r] * p_v * (log p_v + entropy[r]) + 2 * z_loss *
//   |dlogp[r]| * lse[r] * p_v dlogits = dz * inv_temperature
inline constinit Op<void(Tensor dhidden, Tensor dw, LogprobGrad grad, Tensor lse, Tensor entropy, Tensor hidden,
                         Tensor w, Tensor targets, float inv_temperature)>
    logprob_backward{"logprob_backward"};

// Both at once where dLoss/dlogp is known beforehand (pretraining, SFT): logp and lse are written with forward's bits,
// the logits are computed once.
inline constinit Op<void(Tensor logp, Tensor lse, Tensor dhidden, Tensor dw, LogprobGrad grad, Tensor hidden, Tensor w,
                         Tensor targets, float inv_temperature)>
    logprob_fused{"logprob_fused"};

}  // namespace hone
