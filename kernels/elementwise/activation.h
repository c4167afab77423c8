#pragma once
#include "kernels/op.h"

namespace hone {

// y [T, F] = silu(gate) * up with gate_up [T, 2F]: gates, then ups (Shazeer 2020).
inline constinit Op<void(Tensor y, Tensor gate_up)> swiglu_forward{"swiglu_forward"};
// dgate_up is written; it may be gate_up. y [T, F] is written with what forward gave, unless it is empty; it may be dy.
inline constinit Op<void(Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up)> swiglu_backward{"swiglu_backward"};

// GELU, tanh form (Hendrycks and Gimpel 2016; Hugging Face's gelu_new and gelu_pytorch_tanh). y may be x.
inline constinit Op<void(Tensor y, Tensor x)> gelu_forward{"gelu_forward"};
// dx is written; it may be x.
inline constinit Op<void(Tensor dx, Tensor dy, Tensor x)> gelu_backward{"gelu_backward"};

}  // namespace hone
