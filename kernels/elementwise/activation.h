#pragma once
// Activations of MLPs.
#include "kernels/op.h"

namespace hone {

// SwiGLU (Shazeer 2020): y [T, F] = silu(gate) * up, written. gate_up [T, 2F]: gate columns, then up columns.
inline constinit Op<void(Tensor y, Tensor gate_up)> swiglu_forward{"swiglu_forward"};
// dgate_up [T, 2F] is written and may be gate_up. y [T, F] is written with forward's result, or empty; it may be dy.
inline constinit Op<void(Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up)> swiglu_backward{"swiglu_backward"};

// GELU, tanh form (Hendrycks and Gimpel 2016; Hugging Face's gelu_new and gelu_pytorch_tanh). y is written and may be
// x.
inline constinit Op<void(Tensor y, Tensor x)> gelu_forward{"gelu_forward"};
// dx is written and may be x.
inline constinit Op<void(Tensor dx, Tensor dy, Tensor x)> gelu_backward{"gelu_backward"};

}  // namespace hone
