#pragma once
// Dropout (Srivastava et al. 2014).
#include "kernels/op.h"

namespace hone {

// The kept elements of a matrix [R, C]. Element (r, c) has word c % 4 of
// philox(seed, stream, (first_row + r) * ceil(C / 4) + c / 4) and is kept if unit_float(word) >= rate.
struct Dropout {
  float rate = 0;  // in [0, 1); 0 keeps all
  uint64_t seed = 0, stream = 0;
  int64_t first_row = 0;  // rows of the stream before this matrix: a row's numbers do not depend on the micro-batch
};
// y [R, C] = factor * x for kept elements, else 0. y is written and may be x.
inline constinit Op<void(Tensor y, Tensor x, float factor, Dropout which)> dropout{"dropout"};

}  // namespace hone
