#pragma once
// Ops of multi-token prediction (model/mtp.h): tokens and weights moved within their sequences, and the sums of the
// loss.
#include "kernels/op.h"

namespace hone {

// Row t reads token t + distance and predicts token t + distance + 1 of its sequence. `rows` are the tokens whose next
// one is trained on; the row that predicts the same token is `distance` before it. A row without such a token has the
// weight 0. Then its `next` is its own token, and its `from` any row that no other entry has.
struct MultiTokenShift {
  Tensor next;            // [T] i32
  Tensor next_weights;    // [T] f32: weight of the token that the row predicts
  Tensor from, targets;   // [R] i32: the row that predicts the token after rows[r], modulo T; that token
  Tensor target_weights;  // [R] f32
  Tensor dlogp;           // [R] f32: -factor * target_weights
  Tensor tokens;          // [T] i32
  Tensor positions;       // [T] i32: of each token in its sequence; they rise by 1
  Tensor weights;         // [T] f32
  Tensor rows;            // [R] i32, distinct
  int64_t distance;
  float factor;
  static constexpr auto access = op_access(
      written(&MultiTokenShift::next, &MultiTokenShift::next_weights, &MultiTokenShift::from, &MultiTokenShift::targets,
              &MultiTokenShift::target_weights, &MultiTokenShift::dlogp),
      read(&MultiTokenShift::tokens, &MultiTokenShift::positions, &MultiTokenShift::weights, &MultiTokenShift::rows));
};
inline constinit Op<MultiTokenShift> multi_token_shift{"multi_token_shift"};

// sums[0] += sum_r weights[r] * -logp[r]; sums[1] += sum_r weights[r] * hit[r]; sums[2] += sum_r weights[r]. A row of
// weight 0 is not read.
struct MultiTokenSums {
  Tensor sums;                // [3] f32
  Tensor logp, hit, weights;  // [R] f32
  static constexpr auto access = op_access(added_once(&MultiTokenSums::sums),
                                           read(&MultiTokenSums::logp, &MultiTokenSums::hit, &MultiTokenSums::weights));
};
inline constinit Op<MultiTokenSums> multi_token_sums{"multi_token_sums"};

// Throw Error if shapes or dtypes do not fit: for the bodies.
void check_multi_token(const MultiTokenShift& args);
void check_multi_token(const MultiTokenSums& args);

}  // namespace hone
