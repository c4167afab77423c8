#pragma once
// Argument checks of the ops on quantized matrices.
#include "kernels/check_shape.h"
#include "kernels/quant/gemm_quantized.h"

namespace hone {

inline void check_quantized(const OpBase& op, const char* name, const QuantizedMatrix& w, int64_t N, int64_t K) {
  check_shape(op, name, w.values, {N, K}, DType::u8);
  check_shape(op, name, w.scales, {N});
}

// CPU bodies.
inline void check_gemm_quantized(const GemmQuantized& args) {
  const int64_t M = args.x.dim(0), N = args.w.values.dim(0), K = args.w.values.dim(1);
  check_quantized(gemm_quantized, "w", args.w, N, K);
  check_shape(gemm_quantized, "x", args.x, {M, K});
  check_shape(gemm_quantized, "y", args.y, {M, N});
  check_optional(gemm_quantized, "bias", args.bias, {N});
  check_optional(gemm_quantized, "residual", args.residual, {M, N});
}

// CUDA bodies.
void check_gemm_quantized_cuda(const GemmQuantized& args);
namespace quantized {
// The kernel for few rows (gemm_quantized_small_m.cu). Returns false and does nothing if it does not support the
// arguments; y is not empty.
bool run_few(Context& context, const GemmQuantized& args);
}  // namespace quantized

}  // namespace hone
