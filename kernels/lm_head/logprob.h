#pragma once
// The lm_head: from hidden [R, D] and w [V, D] to log-probabilities and back, by ranges of rows. [R, V] never exists.
// logits = hidden . w^T (gemm_forward's sums), soft-capped if softcap > 0 (kernels/elementwise/softcap.h),
// z = logits * inv_temperature, lse = log sum exp z over fixed chunks of
// the vocabulary, merged in ascending order. Row-invariant.
#include "kernels/grad_target.h"
#include "kernels/op.h"

namespace hone {

// logp[r] = z[r, targets[r]] - lse[r]; entropy[r] = lse[r] - sum_v p_v z_v. hit[r] is 1 if no token has a larger z than
// the target, else 0.
// A target outside of the vocabulary is an Error; on a GPU it has a logp of NaN and no gradient of its own.
struct LogprobForward {
  Tensor logp, lse;  // [R] f32, written
  Tensor entropy{};  // [R] f32, written; or empty
  Tensor hit{};      // [R] f32, written; or empty
  Tensor hidden;     // [R, D]
  Tensor w;          // [V, D]
  Tensor targets;    // [R] i32
  float inv_temperature;
  float softcap = 0;
  static constexpr auto access =
      op_access(written(&LogprobForward::logp, &LogprobForward::lse, &LogprobForward::entropy, &LogprobForward::hit),
                read(&LogprobForward::hidden, &LogprobForward::w, &LogprobForward::targets));
};
inline constinit Op<LogprobForward> logprob_forward{"logprob_forward"};

// The gradient of a loss by its inputs from the lm_head. The z-loss adds z_loss * sum_r |dlogp[r]| * lse[r]^2 to the
// loss: it is averaged as the loss is.
struct LogprobGrad {
  Tensor logp;     // [R] f32: dLoss/dlogp
  Tensor entropy;  // [R] f32: dLoss/dentropy; or empty
  float z_loss = 0;
  static constexpr auto access = op_access(read(&LogprobGrad::logp, &LogprobGrad::entropy));
};
// dlogits = dz * inv_temperature, times the soft-cap's derivative, with
//   dz[r, v] = dlogp[r] * (onehot(targets[r]) - p_v) - dentropy[r] * p_v * (log p_v + entropy[r])
//              + 2 * z_loss * |dlogp[r]| * lse[r] * p_v
struct LogprobBackward {
  Tensor dhidden;   // [R, D], written
  GradTarget dw{};  // [V, D]; empty for a frozen lm_head
  LogprobGrad grad;
  Tensor lse;        // of logprob_forward
  Tensor entropy{};  // of logprob_forward, if grad.entropy is there
  Tensor hidden, w, targets;
  float inv_temperature;
  float softcap = 0;
  static constexpr auto access =
      op_access(written(&LogprobBackward::dhidden), parts(&LogprobBackward::dw, &LogprobBackward::grad),
                read(&LogprobBackward::lse, &LogprobBackward::entropy, &LogprobBackward::hidden, &LogprobBackward::w,
                     &LogprobBackward::targets));
};
inline constinit Op<LogprobBackward> logprob_backward{"logprob_backward"};

// Forward and backward at once, for losses whose dLoss/dlogp is known beforehand (pretraining, SFT). The logits are
// computed once. logp, lse and hit have logprob_forward's bits.
struct LogprobFused {
  Tensor logp, lse;  // [R] f32, written
  Tensor hit{};      // [R] f32, written; or empty
  Tensor dhidden;    // [R, D], written
  GradTarget dw{};   // [V, D]; empty for a frozen lm_head
  LogprobGrad grad;
  Tensor hidden, w, targets;
  float inv_temperature;
  float softcap = 0;
  static constexpr auto access =
      op_access(written(&LogprobFused::logp, &LogprobFused::lse, &LogprobFused::hit, &LogprobFused::dhidden),
                parts(&LogprobFused::dw, &LogprobFused::grad),
                read(&LogprobFused::hidden, &LogprobFused::w, &LogprobFused::targets));
};
inline constinit Op<LogprobFused> logprob_fused{"logprob_fused"};

}  // namespace hone
