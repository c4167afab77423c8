#pragma once
// Matrix products with a matrix for each head: the maps of latent attention between a head's own space and the latent
// space. T tokens, H heads; the matrices of the heads are one tensor w [H, N, K], whose row stride may exceed N * K.
//
// head_gemm is row-invariant: y[t, h] depends on x[t, h] and w_h alone, bit for bit. The sum is one f32
// accumulator in ascending order; on the CPU it is a chain of fused multiply-adds, as in kernels/gemm/gemm.h.
#include "kernels/op.h"

namespace hone {

// y[t, h] = x[t, h] . w_h^T, or x[t, h] . w_h if `transposed`. Heads of x and y may have more columns than the product,
// which reads and writes the first ones.
struct HeadGemm {
  Tensor y;                 // [T, H, at least N]; with `transposed` at least K
  Tensor x;                 // [T, H, at least K]; with `transposed` at least N
  Tensor w;                 // [H, N, K]
  bool transposed = false;  // dx = head_gemm(dy, w, transposed) is the gradient of x of a product without it
  static constexpr auto access = op_access(updated(&HeadGemm::y), read(&HeadGemm::x, &HeadGemm::w));
};
inline constinit Op<HeadGemm> head_gemm{"head_gemm"};

// dw_h += a[:, h]^T . b[:, h] over the first N columns of a's heads and the first K of b's: the gradient of w with
// a = dy and b = x, or with a = x and b = dy if the product was transposed.
struct HeadGemmWeight {
  Tensor dw;  // [H, N, K] f32, added to
  Tensor a;   // [T, H, at least N]
  Tensor b;   // [T, H, at least K]
  static constexpr auto access = op_access(added(&HeadGemmWeight::dw), read(&HeadGemmWeight::a, &HeadGemmWeight::b));
};
inline constinit Op<HeadGemmWeight> head_gemm_weight{"head_gemm_weight"};

// Throw Error if shapes or dtypes do not fit: for the bodies.
void check_head_gemm(const HeadGemm& args);
void check_head_gemm(const HeadGemmWeight& args);

// The first `count` columns of head h of x [T, H, D].
inline Tensor head_columns(const Tensor& x, int64_t h, int64_t count) {
  return x.view({x.dim(0), x.dim(1) * x.dim(2)}).columns(h * x.dim(2), count);
}
// The matrix [N, K] of head h.
inline Tensor head_matrix(const Tensor& w, int64_t h) {
  Tensor out(w.data, w.dtype, w.device, {w.dim(1), w.dim(2)});
  if (w.data) out.data = static_cast<char*>(w.data) + static_cast<size_t>(h * w.row_stride) * size_of(w.dtype);
  return out;
}

}  // namespace hone
