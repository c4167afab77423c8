#pragma once
// The order in which rmsnorm_forward sums the squares of a row, for kernels that norm rows themselves with its bits.
// Only .cu and .cuh files include it.
#include "kernels/norm/rmsnorm.h"
#include "kernels/norm/row_tile.cuh"

namespace hone {

struct RmsNormRows {
  static constexpr int most_packs = 6, most_warps = 8;  // per thread; per row
  static RowShape shape(int64_t dim, int numbers_a_pack) {
    return row_shape(rmsnorm_forward, dim, numbers_a_pack, most_packs, most_warps);
  }
};

// Adds the squares of one vector to the thread's two chains.
template <int N>
__device__ void add_squares(float (&part)[2], const float (&v)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) part[j % 2] = fmaf(v[j], v[j], part[j % 2]);
}
__device__ inline float rms_scale(float squares, int dim, float eps) {
  return rsqrtf(squares / static_cast<float>(dim) + eps);
}
__device__ inline float rms_normed(float x, float scale, float weight) { return x * scale * weight; }

// Norms bf16 rows in shared memory in place, with the bits of rmsnorm_forward. Called by the block's first `threads`
// threads, after a barrier; the caller needs a barrier afterwards. at(row, unit): address of 8 elements; a row has
// dim / 8 units, at most `most` per thread. factors: this thread's units of the weight (thread, thread + threads, ...).
// squares: RmsNormRows::most_warps floats per row, 16-byte aligned. sync(): barrier of the threads.
template <int most, class At, class Sync>
__device__ void norm_rows(At at, int rows, int dim, RowShape shape, float eps, const uint4 (&factors)[most],
                          float* squares, int threads, Sync sync) {
  constexpr int parts = RmsNormRows::most_warps;
  const int lane = static_cast<int>(threadIdx.x % 32), pieces = dim / 8;
  int row = 0, warp = static_cast<int>(threadIdx.x / 32);  // warp: index among the warps that rmsnorm_forward uses
  const auto advance_row = [&] {
    while (warp >= shape.warps) {
      warp -= shape.warps;
      ++row;
    }
  };
  for (advance_row(); row < rows; warp += threads / 32, advance_row()) {
    uint4 raw[RmsNormRows::most_packs];
    float part[2] = {};
#pragma unroll
    for (int p = 0; p < RmsNormRows::most_packs; ++p) {  // missing vectors are zero and add nothing
      const int piece = (p * shape.warps + warp) * 32 + lane;
      raw[p] = p < shape.packs && piece < pieces ? *at(row, piece) : uint4{};
    }
#pragma unroll
    for (int p = 0; p < RmsNormRows::most_packs; ++p) {
      if (p % 2 == 0 && p >= shape.packs) break;
      float x[8];
      unpack(x, raw[p]);
      add_squares(part, x);
    }
    const float sum = warp_sum(part[0] + part[1]);
    if (lane == 0) squares[row * parts + warp] = sum;
  }
  sync();
  for (row = 0; row < rows; ++row) {
    float sums[parts];
#pragma unroll
    for (int i = 0; i < parts; i += 4)
      *reinterpret_cast<float4*>(sums + i) = *reinterpret_cast<const float4*>(squares + row * parts + i);
    float sum = sums[0];
#pragma unroll
    for (int i = 1; i < parts; ++i)
      if (i < shape.warps) sum += sums[i];
    const float scale = rms_scale(sum, dim, eps);
#pragma unroll
    for (int i = 0; i < most; ++i) {
      const int piece = static_cast<int>(threadIdx.x) + i * threads;
      if (piece >= pieces) continue;
      float x[8], factor[8];
      unpack(x, *at(row, piece));
      unpack(factor, factors[i]);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] = rms_normed(x[j], scale, factor[j]);
      *at(row, piece) = {packed_word(x, __nv_bfloat16{}), packed_word(x + 2, __nv_bfloat16{}),
                         packed_word(x + 4, __nv_bfloat16{}), packed_word(x + 6, __nv_bfloat16{})};
    }
  }
}

}  // namespace hone
