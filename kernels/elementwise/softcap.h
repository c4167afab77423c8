#pragma once
// Soft-cap of logits (Gemma 2): x becomes softcap * tanh(x / softcap), which lies within softcap of zero.
#include "kernels/op.h"

namespace hone {

// x [rows, dim] f32, updated in place.
inline constinit Op<void(Tensor x, float softcap)> softcap_forward{"softcap_forward"};
// dx [rows, dim], updated in place: the gradient of the result becomes that of the input. y [rows, dim] f32: the
// result.
inline constinit Op<void(Tensor dx, Tensor y, float softcap)> softcap_backward{"softcap_backward"};

}  // namespace hone
