#pragma once
// What every CPU body of the matrix products checks of its arguments: f32 matrices whose sizes agree.
#include "kernels/gemm.h"

namespace hone {

// Throws Error unless x is f32 [rows, columns].
inline void check_matrix(const char* op, const char* name, const Tensor& x, int64_t rows, int64_t columns) {
  HONE_CHECK(x.rank == 2 && x.dtype == DType::f32, op, ": ", name, " is ", name_of(x.dtype), " of rank ", x.rank, ", not an f32 matrix");
  HONE_CHECK(x.dim(0) == rows && x.dim(1) == columns, op, ": ", name, " is [", x.dim(0), ", ", x.dim(1), "], not [", rows, ", ", columns, "]");
}
// Throws Error unless x is f32 [size], or empty.
inline void check_vector(const char* op, const char* name, const Tensor& x, int64_t size) {
  HONE_CHECK(!x || (x.rank == 1 && x.dtype == DType::f32 && x.dim(0) == size), op, ": ", name, " is ", name_of(x.dtype), " of ", x.size(), ", not f32 [", size, "]");
}

inline void check_gemm_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual) {
  check_matrix("gemm_forward", "w", w, w.dim(0), w.dim(1));
  check_matrix("gemm_forward", "x", x, x.dim(0), w.dim(1));
  check_matrix("gemm_forward", "y", y, x.dim(0), w.dim(0));
  check_vector("gemm_forward", "bias", bias, w.dim(0));
  if (residual) check_matrix("gemm_forward", "residual", residual, x.dim(0), w.dim(0));
}
inline void check_gemm_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w) {
  check_matrix("gemm_backward_input", "w", w, w.dim(0), w.dim(1));
  check_matrix("gemm_backward_input", "dy", dy, dy.dim(0), w.dim(0));
  check_matrix("gemm_backward_input", "dx", dx, dy.dim(0), w.dim(1));
}
inline void check_gemm_backward_weight(const Tensor& dw, const Tensor& dbias, const Tensor& dy, const Tensor& x) {
  check_matrix("gemm_backward_weight", "x", x, x.dim(0), x.dim(1));
  check_matrix("gemm_backward_weight", "dy", dy, x.dim(0), dy.dim(1));
  check_matrix("gemm_backward_weight", "dw", dw, dy.dim(1), x.dim(1));
  check_vector("gemm_backward_weight", "dbias", dbias, dy.dim(1));
}

}  // namespace hone
