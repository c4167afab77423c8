#pragma once
// What every CPU body of the matrix products checks of its arguments: f32 matrices whose sizes agree.
#include "kernels/check_shape.h"
#include "kernels/gemm/gemm.h"

namespace hone {

inline void check_gemm_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                               const Tensor& residual) {
  const int64_t M = x.dim(0), N = w.dim(0), K = w.dim(1);
  check_shape(gemm_forward, "w", w, {N, K});
  check_shape(gemm_forward, "x", x, {M, K});
  check_shape(gemm_forward, "y", y, {M, N});
  check_optional(gemm_forward, "bias", bias, {N});
  check_optional(gemm_forward, "residual", residual, {M, N});
}
inline void check_gemm_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w) {
  const int64_t M = dy.dim(0), N = w.dim(0), K = w.dim(1);
  check_shape(gemm_backward_input, "w", w, {N, K});
  check_shape(gemm_backward_input, "dy", dy, {M, N});
  check_shape(gemm_backward_input, "dx", dx, {M, K});
}
inline void check_gemm_backward_weight(const Tensor& dw, const Tensor& dbias, const Tensor& dy, const Tensor& x) {
  const int64_t M = x.dim(0), N = dy.dim(1), K = x.dim(1);
  check_shape(gemm_backward_weight, "x", x, {M, K});
  check_shape(gemm_backward_weight, "dy", dy, {M, N});
  check_shape(gemm_backward_weight, "dw", dw, {N, K});
  check_optional(gemm_backward_weight, "dbias", dbias, {N});
}

}  // namespace hone
