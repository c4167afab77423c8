#pragma once
// Argument checks of the matrix products and the functions that several of their CUDA bodies call.
#include "kernels/check_shape.h"
#include "kernels/gemm/gemm.h"

namespace hone {

// CPU: f32 matrices whose sizes agree.
inline void check_gemm_forward(const GemmForward& args) {
  const int64_t M = args.x.dim(0), N = args.w.dim(0), K = args.w.dim(1);
  check_shape(gemm_forward, "w", args.w, {N, K});
  check_shape(gemm_forward, "x", args.x, {M, K});
  check_shape(gemm_forward, "y", args.y, {M, N});
  check_optional(gemm_forward, "bias", args.bias, {N});
  check_optional(gemm_forward, "residual", args.residual, {M, N});
}
inline void check_gemm_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w) {
  const int64_t M = dy.dim(0), N = w.dim(0), K = w.dim(1);
  check_shape(gemm_backward_input, "w", w, {N, K});
  check_shape(gemm_backward_input, "dy", dy, {M, N});
  check_shape(gemm_backward_input, "dx", dx, {M, K});
}
inline void check_gemm_backward_weight(const GradTarget& dw, const Tensor& dbias, const Tensor& dy, const Tensor& x) {
  const int64_t M = x.dim(0), N = dy.dim(1), K = x.dim(1);
  check_shape(gemm_backward_weight, "x", x, {M, K});
  check_shape(gemm_backward_weight, "dy", dy, {M, N});
  check_shape(gemm_backward_weight, "dw", dw.sum, {N, K});
  check_optional(gemm_backward_weight, "dbias", dbias, {N});
}

// CUDA: x and w have one dtype, f32 or bf16; y is f32, or bf16 if x is. bias and residual may each be f32 or bf16.
void check_gemm_forward_cuda(const GemmForward& args);

// gemm_forward by cuBLASLt, which chooses its kernel by the number of rows: for Numerics::fast. Returns false and does
// nothing if the numerics are exact, the product is empty, or cuBLASLt has no such product.
bool run_gemm_forward_fast(Context& context, const GemmForward& args);

// CUDA: sums [N] f32 += column sums of x [M, N], in an order that depends on the shape alone.
void add_column_sums(Context& context, const OpBase& op, Tensor sums, Tensor x);

}  // namespace hone
