#pragma once
// Weighted mean of two tensors: a moving average of weights.
#include "kernels/op.h"

namespace hone {

// y = (1 - alpha) y + alpha x, elementwise. y and x are f32 or bf16, of one dtype and size, contiguous. The sum is
// computed in f32 with a fused multiply-add, and rounded to the dtype once, so all devices give the same bits.
inline constinit Op<void(Tensor y, Tensor x, double alpha)> blend{"blend"};

}  // namespace hone
