#pragma once
// The order in which rmsnorm_forward sums a row's squares, for kernels that norm rows themselves and must have its
// bits. .cu files alone include it.
#include "kernels/norm/rmsnorm.h"
#include "kernels/norm/row_tile.cuh"

namespace hone {

struct RmsNormRows {
  static constexpr int most_packs = 6, most_warps = 8;  // of a thread, of a row
  static RowShape shape(int64_t dim, int numbers_a_pack) {
    return row_shape(rmsnorm_forward, dim, numbers_a_pack, most_packs, most_warps);
  }
};

// The squares of one pack, as a thread adds them to its two chains.
template <int N>
__device__ void add_squares(float (&part)[2], const float (&v)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) part[j % 2] = fmaf(v[j], v[j], part[j % 2]);
}
__device__ inline float rms_scale(float squares, int dim, float eps) {
  return rsqrtf(squares / static_cast<float>(dim) + eps);
}
__device__ inline float rms_normed(float x, float scale, float weight) { return x * scale * weight; }

// bf16 rows in shared memory, normed in place with the bits of rmsnorm_forward by the block's first `threads` threads,
// which have a barrier, sync(), before and need one after. at(row, piece): where 8 numbers lie; pieces: dim / 8, at
// most `most` for each thread; factors: the pieces of the weight that are this thread's (thread, thread + threads,
// ...); squares: RmsNormRows::most_warps floats a row, on 16 bytes.
template <int most, class At, class Sync>
__device__ void norm_rows(At at, int rows, int dim, RowShape shape, float eps, const uint4 (&factors)[most],
                          float* squares, int threads, Sync sync) {
  constexpr int parts = RmsNormRows::most_warps;
  const int lane = static_cast<int>(threadIdx.x % 32), pieces = dim / 8;
  int row = 0, warp = static_cast<int>(threadIdx.x / 32);  // of those that rmsnorm_forward has for the row
  const auto settle = [&] {
    while (warp >= shape.warps) warp -= shape.warps, ++row;
  };
  for (settle(); row < rows; warp += threads / 32, settle()) {
    uint4 raw[RmsNormRows::most_packs];
    float part[2] = {};
#pragma unroll
    for (int p = 0; p < RmsNormRows::most_packs; ++p) {  // zeros add nothing
      const int piece = (p * shape.warps + warp) * 32 + lane;
      raw[p] = p < shape.packs && piece < pieces ? *at(row, piece) : uint4{};
    }
#pragma unroll
    for (int p = 0; p < RmsNormRows::most_packs; ++p) {
      if (p % 2 == 0 && p >= shape.packs) break;
      float x[8];
      unpack(x, raw[p]), add_squares(part, x);
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
      unpack(x, *at(row, piece)), unpack(factor, factors[i]);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] = rms_normed(x[j], scale, factor[j]);
      *at(row, piece) = {packed_word(x, __nv_bfloat16{}), packed_word(x + 2, __nv_bfloat16{}),
                         packed_word(x + 4, __nv_bfloat16{}), packed_word(x + 6, __nv_bfloat16{})};
    }
  }
}

}  // namespace hone
