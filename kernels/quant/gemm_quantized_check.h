#pragma once
// What the CPU bodies of gemm_quantized check of their arguments.
#include "kernels/quant/gemm_quantized.h"
#include "kernels/quant/quantize_check.h"

namespace hone {

inline void check_gemm_quantized(const Tensor& y, const Tensor& x, const QuantizedMatrix& w, const Tensor& bias,
                                 const Tensor& residual) {
  const int64_t M = x.dim(0), N = w.values.dim(0), K = w.values.dim(1);
  check_quantized(gemm_quantized, "w", w, N, K);
  check_shape(gemm_quantized, "x", x, {M, K});
  check_shape(gemm_quantized, "y", y, {M, N});
  check_optional(gemm_quantized, "bias", bias, {N});
  check_optional(gemm_quantized, "residual", residual, {M, N});
}

}  // namespace hone
