#pragma once
// Dispatch of tokens to experts and back. Each token t has k choices (t, c), c = 0 .. k - 1. The choices are sorted by
// expert; among those of one expert by token, then c. A position is an index in that order: expert e has positions
// offsets[e] .. offsets[e + 1]. Nothing is dropped unless `capacity` is set.
#include "kernels/op.h"

namespace hone {

struct MoeDispatch {
  Tensor order;          // [T * k] i32: the choice t * k + c at each position; -1 at positions from offsets[E] on
  Tensor places;         // [T, k] i32: the position of each choice; -1 if it is dropped
  Tensor offsets;        // [E + 1] i32
  Tensor experts;        // [T, k] i32
  int64_t capacity = 0;  // most choices per expert: later ones are dropped; 0: no limit
  static constexpr auto access =
      op_access(written(&MoeDispatch::order, &MoeDispatch::places, &MoeDispatch::offsets), read(&MoeDispatch::experts));
};
inline constinit Op<MoeDispatch> moe_dispatch{"moe_dispatch"};

// y[p] = x[order[p] / k]; a row of zeros if order[p] is -1.
struct MoeGather {
  Tensor y;      // [P, D]
  Tensor x;      // [T, D]
  Tensor order;  // [P] i32; P = T * k
  static constexpr auto access = op_access(written(&MoeGather::y), read(&MoeGather::x, &MoeGather::order));
};
inline constinit Op<MoeGather> moe_gather{"moe_gather"};

// y[t] = sum over c of weights[t, c] * x[places[t, c]], in ascending c and f32, plus residual[t]. Dropped choices add
// nothing. Without weights it is the gradient of moe_gather.
struct MoeCombine {
  Tensor y;           // [T, D]
  Tensor x;           // [P, D]
  Tensor places;      // [T, k] i32
  Tensor weights{};   // [T, k] f32, or empty: 1
  Tensor residual{};  // [T, D] or empty; may be y
  static constexpr auto access = op_access(
      written(&MoeCombine::y), read(&MoeCombine::x, &MoeCombine::places, &MoeCombine::weights, &MoeCombine::residual));
};
inline constinit Op<MoeCombine> moe_combine{"moe_combine"};

// The gradient of a choice's weight. With W the experts' last matrix, h its input row and g = dout . W: the output is
// weight * (h . W^T), so the weight's gradient is g . h. The op then multiplies g and h by the weight. After it, g is
// the gradient of h, and the gradient of W is dout^T . h.
struct MoeWeightBackward {
  Tensor dweights;  // [T, k] f32; 0 for dropped choices
  Tensor g;         // [P, F], updated; rows without a choice stay
  Tensor h;         // [P, F], updated; rows without a choice stay
  Tensor weights;   // [T, k] f32
  Tensor places;    // [T, k] i32
  static constexpr auto access =
      op_access(written(&MoeWeightBackward::dweights), updated(&MoeWeightBackward::g, &MoeWeightBackward::h),
                read(&MoeWeightBackward::weights, &MoeWeightBackward::places));
};
inline constinit Op<MoeWeightBackward> moe_weight_backward{"moe_weight_backward"};

// Throw Error if shapes or dtypes do not fit: for the bodies.
void check_moe_dispatch(const MoeDispatch& args);
void check_moe_gather(const MoeGather& args);
void check_moe_combine(const MoeCombine& args);
void check_moe_weight_backward(const MoeWeightBackward& args);

}  // namespace hone
