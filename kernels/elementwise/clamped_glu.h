#pragma once
// The gated activation of gpt-oss's experts: a SwiGLU whose operands are clamped and whose up columns are shifted by 1.
#include "kernels/op.h"

namespace hone {

struct ClampedGlu {
  float limit = 7;       // gate is at most limit, up lies in [-limit, limit]
  float alpha = 1.702f;  // sigmoid(alpha * gate): an approximation of GELU
};

// y [T, F] = (up + 1) * gate * sigmoid(alpha * gate), after the clamps; written. gate_up [T, 2F]: gate columns, then up
// columns.
inline constinit Op<void(Tensor y, Tensor gate_up, ClampedGlu rule)> clamped_glu_forward{"clamped_glu_forward"};
// dgate_up [T, 2F] is written and may be gate_up. A column outside of its limits has the gradient 0.
inline constinit Op<void(Tensor dgate_up, Tensor dy, Tensor gate_up, ClampedGlu rule)> clamped_glu_backward{
    "clamped_glu_backward"};

}  // namespace hone
