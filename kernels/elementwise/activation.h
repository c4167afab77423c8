#pragma once
// Activations of MLPs, alone and gated.
#include "kernels/op.h"

namespace hone {

enum class Activation : uint8_t {
  silu,       // x sigmoid(x): SwiGLU if gated
  gelu_tanh,  // GELU (Hendrycks and Gimpel 2016), tanh form: Hugging Face's gelu_new, gelu_fast and gelu_pytorch_tanh;
              // GeGLU
  gelu,       // GELU with erf
  relu,       // ReGLU if gated
  relu2,      // relu(x)^2 (So et al. 2021)
};

// Gated (Shazeer 2020): y [T, F] = activation(gate) * up, written. gate_up [T, 2F]: gate columns, then up columns.
inline constinit Op<void(Tensor y, Tensor gate_up, Activation kind)> glu_forward{"glu_forward"};
// dgate_up [T, 2F] is written and may be gate_up. y [T, F] is written with forward's result, or empty; it may be dy.
inline constinit Op<void(Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up, Activation kind)> glu_backward{
    "glu_backward"};

// y = activation(x) is written and may be x.
inline constinit Op<void(Tensor y, Tensor x, Activation kind)> activation_forward{"activation_forward"};
// dx is written and may be x.
inline constinit Op<void(Tensor dx, Tensor dy, Tensor x, Activation kind)> activation_backward{"activation_backward"};

}  // namespace hone
