#pragma once
// Argument checks of all bodies of qkv_forward and qkv_backward. Heads, norms and cache hold `dtype`. The values of
// positions and slots are checked if the host can read them.
#include "kernels/rope/qkv.h"

namespace hone {

void check_qkv_forward(const QkvForward& args, DType dtype);
void check_qkv_backward(const QkvBackward& args, DType dtype);

}  // namespace hone
