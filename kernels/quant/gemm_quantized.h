#pragma once
// The product of a linear layer whose weight has one byte a number (kernels/quant/quantize.h): for rollouts, never for
// learning. On a GPU what is queued right before it must not write w, which is read ahead of it.
//
// Row-invariant as gemm_forward is, with its chunks: y[m, n] is gemm_forward's sum of x[m, :] and values[n, :] (exact
// in bf16), times scales[n] in f32, plus bias, plus residual.
#include "kernels/quant/quantize.h"

namespace hone {

// y [M, N] = (x [M, K] . values [N, K]^T) * scales [N] (+ bias [N]) (+ residual [M, N]); y is written. bias and
// residual may be empty; residual may be y itself. On a GPU x is f32 or bf16; y is f32, or bf16 where x is.
inline constinit Op<void(Tensor y, Tensor x, QuantizedMatrix w, Tensor bias, Tensor residual)> gemm_quantized{
    "gemm_quantized"};

}  // namespace hone
