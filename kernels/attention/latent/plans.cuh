#pragma once
// Plans of the kernel of latent attention (tiles.cuh): tile sizes, shared memory, and the products with mma.sync.
#include "kernels/attention/latent/call.cuh"
#include "kernels/attention/mma.cuh"

namespace hone::attention {

inline constexpr int latent_keys = 64;          // keys of a block
inline constexpr int latent_units = 72;         // 16-byte units of a row in shared memory: 576 columns
inline constexpr int latent_warp_columns = 64;  // value columns per warp: 8 warps have 512
inline constexpr int latent_split_blocks = split_keys / latent_keys;

// A warp has the sums of all rows and 64 columns.
template <int Fragments, int Stages>
struct LatentPlan {
  static constexpr int fragments = Fragments, stages = Stages, rows = 16 * Fragments, threads = 256;
  static constexpr int key_warps = Fragments == 1 ? 4 : 8 / Fragments,  // that share 16 rows of scores
      warp_keys = latent_keys / key_warps;
  static constexpr int sum_fragments = Fragments, sum_tiles = latent_warp_columns / 8;  // accumulators of a warp
  static constexpr uint32_t row_bytes = latent_units * 16, q_bytes = rows * row_bytes,
                            stage_bytes = latent_keys * row_bytes, p_bytes = rows * latent_keys * 2;
  static constexpr uint32_t p_at = q_bytes + Stages * stage_bytes, stats_at = p_at + p_bytes;
  // Statistics of each row: maxima of the key warps, 4 sums of 16 keys, m, the new m, alpha.
  static constexpr size_t bytes = stats_at + sizeof(float) * rows * (key_warps + 4 + 3);
  static constexpr size_t static_bytes = 0;
  static constexpr int64_t partial_floats = int64_t{rows} * 8 * latent_warp_columns;  // o of a tile in scratch memory
  // Whether a warp has columns below the rank.
  static __device__ bool has_values(int warp, int rank) { return first_column(warp) < rank; }
  static __device__ int first_row(int) { return 0; }
  static __device__ int first_column(int warp) { return warp * latent_warp_columns; }

  // s = q . k of 16 rows and the keys of a warp.
  static __device__ void scores(float (&s)[warp_keys / 8][4], uint32_t q, uint32_t stage, int group, int first_key,
                                int padded_units, int lane) {
    constexpr int K = warp_keys / 8;
#pragma unroll
    for (int n = 0; n < K; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = 0;
#pragma unroll 2
    for (int unit = 0; unit < padded_units; unit += 4) {
      uint32_t first[4], second[4];
      ldmatrix_x4(first, left_at<latent_units>(q, 16 * group, unit, lane));
      ldmatrix_x4(second, left_at<latent_units>(q, 16 * group, unit + 2, lane));
#pragma unroll
      for (int n = 0; n < K; ++n) {
        uint32_t k[4];
        ldmatrix_x4(k, unit_at<latent_units>(stage, first_key + 8 * n + lane % 8, unit + lane / 8));
        mma_m16n8k16(s[n], first, k[0], k[1]);
        mma_m16n8k16(s[n], second, k[2], k[3]);
      }
    }
  }

  // o += p . v of a block.
  static __device__ void add_values(float (&o)[sum_fragments][sum_tiles][4], uint32_t p_tile, uint32_t stage, int rank,
                                    int warp, int lane) {
#pragma unroll
    for (int k = 0; k < latent_keys / 16; ++k) {
      uint32_t p[sum_fragments][4];
#pragma unroll
      for (int f = 0; f < sum_fragments; ++f) ldmatrix_x4(p[f], left_at<8>(p_tile, 16 * f, 2 * k, lane));
#pragma unroll
      for (int n = 0; n < sum_tiles; n += 2) {
        if (first_column(warp) + 8 * n >= rank) break;
        uint32_t v[4];
        ldmatrix_x4_trans(v, summed_at<latent_units>(stage, 16 * k, first_column(warp) / 8 + n, lane));
#pragma unroll
        for (int f = 0; f < sum_fragments; ++f) {
          mma_m16n8k16(o[f][n], p[f], v[0], v[1]);
          mma_m16n8k16(o[f][n + 1], p[f], v[2], v[3]);
        }
      }
    }
  }
};

}  // namespace hone::attention
