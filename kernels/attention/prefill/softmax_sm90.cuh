#pragma once
// Online softmax of a warpgroup's rows of scores (numerics.cuh). A thread holds 32 columns of each of two rows in the
// wgmma accumulator layout of 64 x 128 (hopper.cuh).
#include "kernels/attention/numerics.cuh"
#include "kernels/attention/wgmma.cuh"

namespace hone::attention {

// Running maximum and sum of two rows; the four lanes of a row have the same values.
struct SoftmaxRows {
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
};

// Set masked scores of two rows (row, row + 8) to -inf; `key` is the lane's first key. mask_later() is the causal edge,
// mask_earlier() that of the window.
__device__ inline void mask_later(float (&s)[64], int row, int key) {
#pragma unroll
  for (int i = 0; i < 64; ++i)
    if (i / 4 * 8 + i % 2 > row + i / 2 % 2 * 8 - key) s[i] = -INFINITY;
}
__device__ inline void mask_earlier(float (&s)[64], int row, int key, int window) {
#pragma unroll
  for (int i = 0; i < 64; ++i)
    if (i / 4 * 8 + i % 2 < first_seen(row + i / 2 % 2 * 8, window) - key) s[i] = -INFINITY;
}

// Turns scores into weights and updates rows and alpha.
__device__ inline void weigh(float (&s)[64], SoftmaxRows& rows, float (&alpha)[2], float c) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float m = rows.m[r];
#pragma unroll
    for (int j = 0; j < 16; ++j) m = fmaxf(m, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    m = quad_max(m);
    const float base = base_of(m), shift = shift_of(base, c);
    alpha[r] = rescaling(rows.m[r], base, c);
    rows.m[r] = m;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * j + 2 * r + e];
        x = weight(x, c, shift);
        sum += x;
      }
    rows.l[r] = fmaf(rows.l[r], alpha[r], quad_sum(sum));
  }
}

__device__ inline void pack(uint32_t (&p)[32], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i] = sm90::pack_bf16(s[2 * i], s[2 * i + 1]);
}

// The merged splits so far: maxima and sums in registers, outputs in shared memory, one column of it per thread.
template <int N>
struct Total {
  SoftmaxRows rows;
  bool any = false;
  float4 (*outputs)[128];

  // Merges the total into (split, o): `rows` and o become those of all splits so far.
  __device__ void merge(const SoftmaxRows& split, float (&o)[N], float c) {
    if (!any) {
      rows = split;
      return;
    }
    MergeFactors factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] = merge_factors(rows.m[r], split.m[r], c);
      rows.l[r] = merged(rows.l[r], split.l[r], factors[r]);
      rows.m[r] = factors[r].m;
    }
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const float4 t = outputs[i][threadIdx.x % 128];
      o[4 * i] = merged(t.x, o[4 * i], factors[0]);
      o[4 * i + 1] = merged(t.y, o[4 * i + 1], factors[0]);
      o[4 * i + 2] = merged(t.z, o[4 * i + 2], factors[1]);
      o[4 * i + 3] = merged(t.w, o[4 * i + 3], factors[1]);
    }
  }
  __device__ void keep(const float (&o)[N]) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      outputs[i][threadIdx.x % 128] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    any = true;
  }
};

}  // namespace hone::attention
