#pragma once
// The product of a linear layer whose weight has one byte per number (kernels/quant/quantize.h): for rollouts, never
// for training.
//
// Row-invariant as gemm_forward is, with its chunks: y[m, n] is gemm_forward's sum of x[m, :] and values[n, :] (exact
// in bf16), times scales[n] in f32, plus bias, plus residual.
#include "kernels/quant/quantize.h"

namespace hone {

// y = (x . values^T) * scales (+ bias) (+ residual)
struct GemmQuantized {
  Tensor y;           // [M, N], written; on a GPU f32, or bf16 if x is
  Tensor x;           // [M, K]; on a GPU f32 or bf16
  QuantizedMatrix w;  // [N, K]; on a GPU the op queued right before must not write it
  Tensor bias{};      // [N] or empty
  Tensor residual{};  // [M, N] or empty; may be y itself
  static constexpr auto access = op_access(written(&GemmQuantized::y), parts(&GemmQuantized::w),
                                           read(&GemmQuantized::x, &GemmQuantized::bias, &GemmQuantized::residual));
};
inline constinit Op<GemmQuantized> gemm_quantized{"gemm_quantized"};

}  // namespace hone
