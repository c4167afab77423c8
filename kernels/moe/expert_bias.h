#pragma once
// Biases of the experts of a mixture (gpt-oss): each row gets the bias of its expert. Rows are sorted by expert, as in
// kernels/moe/grouped_gemm.h: expert e has rows offsets[e] .. offsets[e + 1].
#include "kernels/op.h"

namespace hone {

// y[r] = bias[e] for the rows of expert e; rows from offsets[E] on are 0. grouped_gemm_forward then adds to it.
struct ExpertBiasForward {
  Tensor y;        // [P, N]
  Tensor bias;     // [E, N]
  Tensor offsets;  // [E + 1] i32
  static constexpr auto access =
      op_access(written(&ExpertBiasForward::y), read(&ExpertBiasForward::bias, &ExpertBiasForward::offsets));
};
inline constinit Op<ExpertBiasForward> expert_bias_forward{"expert_bias_forward"};

// dbias[e] += sum over the rows r of expert e of weight * dy[r], in ascending r. The weight is that of the row's choice
// order[r] (kernels/moe/dispatch.h), or 1.
struct ExpertBiasBackward {
  Tensor dbias;      // [E, N] f32; each element gets one addition (kernels/adds_once.h)
  Tensor dy;         // [P, N]
  Tensor offsets;    // [E + 1] i32
  Tensor weights{};  // [T, k] f32 or empty: 1
  Tensor order{};    // [P] i32 of moe_dispatch, with weights
  static constexpr auto access =
      op_access(added_once(&ExpertBiasBackward::dbias), read(&ExpertBiasBackward::dy, &ExpertBiasBackward::offsets,
                                                             &ExpertBiasBackward::weights, &ExpertBiasBackward::order));
};
inline constinit Op<ExpertBiasBackward> expert_bias_backward{"expert_bias_backward"};

// The bias's part of the gradient of a choice's weight: dweights[t, c] += dy[places[t, c]] . bias[experts[t, c]], where
// dy is the gradient of the weighted output. Dropped choices (places -1) stay.
struct ExpertBiasWeights {
  Tensor dweights;  // [T, k] f32, updated
  Tensor dy;        // [P, N]
  Tensor bias;      // [E, N]
  Tensor experts;   // [T, k] i32
  Tensor places;    // [T, k] i32
  static constexpr auto access = op_access(
      updated(&ExpertBiasWeights::dweights),
      read(&ExpertBiasWeights::dy, &ExpertBiasWeights::bias, &ExpertBiasWeights::experts, &ExpertBiasWeights::places));
};
inline constinit Op<ExpertBiasWeights> expert_bias_weights{"expert_bias_weights"};

// Throw Error if shapes or dtypes do not fit: for the bodies.
void check_expert_bias(const ExpertBiasForward& args);
void check_expert_bias(const ExpertBiasBackward& args);
void check_expert_bias(const ExpertBiasWeights& args);

}  // namespace hone
