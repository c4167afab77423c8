#pragma once
// The arithmetic of all CUDA forward bodies of attention. Packed and paged calls, prefill in any chunks, decode and
// training give a query the same bits, whichever body runs. (Caches in fp8 and latent attention have their own
// rules: decode/fp8.cu and latent/tiles.cuh.)
//
// For one query and head, c = scale * log2(e), bf16 operands:
//   Keys are cut into splits of 1024 and blocks of 128, both aligned to position 0 of the sequence. A split starts with
//   m = -inf, l = 0, o = 0. Its blocks follow in ascending order:
//     s     = q . k in one f32 accumulator from zero, 16 elements of the head per MMA, ascending (a tail of 8 is padded
//             with zeros); -inf where the mask hides the key.
//     m'    = max(m, max of s);  base = base_of(m') is m', or 0 where m' is -inf.
//     alpha = rescaling(m, base, c);  p = weight(s, c, shift_of(base, c)).
//     o     = o * alpha, then p (rounded to bf16) . v into the same accumulator, 16 keys per MMA, ascending.
//     l     = fmaf(l, alpha, sum of p), p in f32. In an accumulator row, lane t of four holds columns 8 j + 2 t and
//             8 j + 2 t + 1. A lane adds its own in ascending order; then quad_sum() adds the lanes.
//   Splits are merged into a total in ascending order. The first split is the total; later ones go through
//   merge_factors() and merged(). Then out = o * RowEnd::inverse and lse = RowEnd::lse: those of end_of_keys(), or with
//   an attention sink those of end_with_sink().
// For f32 operands the rule is the same with s, o and the sum of p as chains of fmaf (kernels/attention/plain.cu).
//
// A body may skip what changes no bit: a block or split that is masked for the query, 16 masked keys, columns with
// p = 0 in a row's sum, a rescaling by alpha = 1 or of zero. It must not read v past the end of the sequence as stored
// (0 * NaN is NaN): it uses zeros.
#include "kernels/attention/key_tile.h"
#include "kernels/cuda/cuda.cuh"

namespace hone::attention {

inline constexpr int block_keys = 128, split_keys = 1024, split_blocks = split_keys / block_keys;
inline constexpr float log2e = 1.44269504f;
static_assert(max_key_tile % block_keys == 0);

// c. The host computes it, so that all kernels have the same bits.
inline float exponent_scale(float scale) { return scale * log2e; }

__device__ inline float base_of(float m) { return m == -INFINITY ? 0.0f : m; }
__device__ inline float shift_of(float base, float c) { return -base * c; }
__device__ inline float weight(float s, float c, float shift) { return exp2_approx(fmaf(s, c, shift)); }
__device__ inline float rescaling(float m_before, float base, float c) { return exp2_approx((m_before - base) * c); }

// Reduces over the four lanes that hold an accumulator row; all four get the result.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// merged(total, split, factors) merges l or o of a split into the total under the new maximum m.
struct MergeFactors {
  float m, total, split;
};
__device__ inline MergeFactors merge_factors(float m_total, float m, float c) {
  const float top = fmaxf(m_total, m), base = base_of(top);
  return {top, rescaling(m_total, base, c), rescaling(m, base, c)};
}
__device__ inline float merged(float total, float split, MergeFactors factors) {
  return fmaf(total, factors.total, split * factors.split);
}

__device__ inline float reciprocal(float l) { return __frcp_rn(l); }
__device__ inline float log_sum(float m, float l, float scale) { return fmaf(m, scale, logf(l)); }

// The factor of a row's o, and its log-sum-exp.
struct RowEnd {
  float inverse, lse;
};
__device__ inline RowEnd end_of_keys(float m, float l, float scale) { return {reciprocal(l), log_sum(m, l, scale)}; }
// The sink joins l under the larger of the two maxima, the keys' or the sink itself.
__device__ inline RowEnd end_with_sink(float m, float l, float sink, float scale) {
  const float above = fmaf(-m, scale, sink);  // of the sink above the largest score
  const float keys = exp2_approx(fminf(-above, 0.0f) * log2e), own = exp2_approx(fminf(above, 0.0f) * log2e),
              sum = fmaf(l, keys, own);
  return {keys * reciprocal(sum), above > 0 ? sink + logf(sum) : log_sum(m, sum, scale)};
}

// The keys [first, position] that a query sees.
__host__ __device__ inline int first_seen(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

}  // namespace hone::attention
