#pragma once
#include "kernels/op.h"

namespace hone {

// Which elements of a matrix [R, C] are kept: element (r, c) has word c % 4 of philox(seed, stream, (first_row + r) *
// ceil(C / 4) + c / 4) and is kept where unit_float(word) >= rate. first_row: how many rows of the stream came before,
// so that a row's draws do not depend on how rows are cut.
struct Dropout {
  float rate = 0;  // in [0, 1); 0 keeps everything
  uint64_t seed = 0, stream = 0;
  int64_t first_row = 0;
};
// y [R, C] = factor * x where it is kept, 0 elsewhere; y is written and may be x.
inline constinit Op<void(Tensor y, Tensor x, float factor, Dropout which)> dropout{"dropout"};

}  // namespace hone
