#pragma once
// Conversion and addition of tensors.
#include "kernels/op.h"

namespace hone {

// y = x in y's dtype, rounded to nearest even. Each is f32, bf16, f16 or f64, of the same size.
inline constinit Op<void(Tensor y, Tensor x)> cast{"cast"};
// y += x, elementwise, same dtype and size.
inline constinit Op<void(Tensor y, Tensor x)> add_into{"add_into"};

}  // namespace hone
