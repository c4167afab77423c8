#pragma once
// Clamp to [-limit, limit], as torch.clamp does it: clip_qkv of OLMoE.
#include "kernels/op.h"

namespace hone {

// x [rows, dim], updated in place. A NaN stays a NaN.
inline constinit Op<void(Tensor x, float limit)> clamp_forward{"clamp_forward"};
// dx [rows, dim], updated in place: the gradient of the result becomes that of the input, 0 where |x| is above limit.
// x [rows, dim]: the input before the clamp, in the dtype of dx.
inline constinit Op<void(Tensor dx, Tensor x, float limit)> clamp_backward{"clamp_backward"};

}  // namespace hone
