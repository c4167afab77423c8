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
struct RmsNormWeights {
  Tensor weight;  // [K]
  float eps = 0;
};

// y [T, F] = swiglu_forward(gemm_forward(rmsnorm_forward(x)));  x [T, K], w [2F, K]: gates, then ups; bias [2F] or
// empty. y is written.
inline constinit Op<void(Tensor y, Tensor x, RmsNormWeights norm, Tensor w, Tensor bias)> gate_up_swiglu{
    "gate_up_swiglu"};

// A matrix and its bias, as gemm_forward takes them.
struct GemmWeights {
  Tensor w, bias;
};

// What becomes of x in qkv_forward(gemm_forward(rmsnorm_forward(x))): q [T, H, d] and the cache's rows at its slots;
// qkv.w [(H + 2 Hk) * d, K]: rows of q, k, v. q_norm, k_norm [d] or both empty; the other fields are qkv_forward's, the
// cache is there.
struct QkvProjection {
  Tensor q;
  RmsNormWeights norm;
  GemmWeights qkv;
  Tensor positions, cos_sin, q_norm, k_norm;
  QkvShape shape;
  KvWriteTarget cache;
};
// x [T, K].
inline constinit Op<void(Tensor x, QkvProjection heads)> qkv_rope_cache{"qkv_rope_cache"};

// y [T, N] = gemm_forward(x, w, bias, residual) and normed [T, N] = rmsnorm_forward(y). normed is nothing else's
// memory.
inline constinit Op<void(Tensor y, Tensor normed, Tensor x, Tensor w, Tensor bias, Tensor residual,
                         RmsNormWeights norm)>
    gemm_rmsnorm{"gemm_rmsnorm"};

// gate_up_swiglu's matrix and the one that follows it.
struct GatedMlpWeights {
  RmsNormWeights norm;
  GemmWeights gate_up, down;
};

// From the attention of one block to that of the next, x [T, C] in place:
//   x = gemm_forward(mixed, output) + x;  x = gemm_forward(gate_up_swiglu(x, mlp), mlp.down) + x;  qkv_rope_cache(x,
//   next), unless next.q is empty.
// mixed [T, H * d]: what attention left.
inline constinit Op<void(Tensor x, Tensor mixed, GemmWeights output, GatedMlpWeights mlp, QkvProjection next)>
    decoder_layer_tail{"decoder_layer_tail"};

// Up to so many rows the norm is best left to the op that reads its result, gate_up_swiglu or qkv_rope_cache; for more,
// to the one that writes its input, gemm_rmsnorm.
inline constexpr int64_t max_rows_norm_in_gemm = 8;

}  // namespace hone
