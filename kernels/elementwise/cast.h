#pragma once
#include "kernels/op.h"

namespace hone {

// y = x in y's dtype, round to nearest even; f32, bf16, f16 and f64 either way.
inline constinit Op<void(Tensor y, Tensor x)> cast{"cast"};
// y += x, elementwise, same dtype and size.
inline constinit Op<void(Tensor y, Tensor x)> add_into{"add_into"};

}  // namespace hone
