#pragma once
// The products of a decoder's block with the small ops before and after them, for passes that keep nothing for a
// backward pass.
//
// x is normed first where `norm` has a weight; what is normed, multiplied and turned is rounded to its storage after
// each of these steps, so that the results have the bits of the ops that the steps are named for. The rule of
// gemm_forward about w holds for the norm's weight, too.
#include "kernels/rope/qkv.h"

namespace hone {

// Of rmsnorm_forward; without a weight, none.
struct RowNorm {
  Tensor weight;  // [K]
  float eps = 0;
};

// y [T, F] = swiglu_forward(gemm_forward(rmsnorm_forward(x)));  x [T, K], w [2F, K]: gates, then ups; bias [2F] or
// empty. y is written.
inline constinit Op<void(Tensor y, Tensor x, RowNorm norm, Tensor w, Tensor bias)> project_gated{"project_gated"};

// A matrix and its bias, as gemm_forward takes them.
struct Product {
  Tensor w, bias;
};

// What becomes of x in qkv_forward(gemm_forward(rmsnorm_forward(x))): q [T, H, d] and the cache's rows at its slots;
// qkv.w [(H + 2 Hk) * d, K]: rows of q, k, v. q_norm, k_norm [d] or both empty; the other fields are qkv_forward's, the
// cache is there.
struct Heads {
  Tensor q;
  RowNorm norm;
  Product qkv;
  Tensor positions, cos_sin, q_norm, k_norm;
  QkvShape shape;
  KvWrite cache;
};
// x [T, K].
inline constinit Op<void(Tensor x, Heads heads)> project_heads{"project_heads"};

// y [T, N] = gemm_forward(x, w, bias, residual) and normed [T, N] = rmsnorm_forward(y). normed is nothing else's
// memory.
inline constinit Op<void(Tensor y, Tensor normed, Tensor x, Tensor w, Tensor bias, Tensor residual, RowNorm norm)>
    gemm_norm_forward{"gemm_norm_forward"};

// project_gated's matrix and the one that follows it.
struct GatedProducts {
  RowNorm norm;
  Product gate_up, down;
};

// From the attention of one block to that of the next, x [T, C] in place:
//   x = gemm_forward(mixed, output) + x;  x = gemm_forward(project_gated(x, mlp), mlp.down) + x;  project_heads(x,
//   next), unless next.q is empty.
// mixed [T, H * d]: what attention left.
inline constinit Op<void(Tensor x, Tensor mixed, Product output, GatedProducts mlp, Heads next)> project_between{
    "project_between"};

// Up to so many rows the norm is best left to the op that reads its result, project_gated or project_heads; for more,
// to the one that writes its input, gemm_norm_forward.
inline constexpr int64_t rows_normed_by_reader = 8;

}  // namespace hone
