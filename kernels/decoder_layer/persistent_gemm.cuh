#pragma once
// What the persistent kernel of a layer (persistent.cuh) takes: its GEMMs, how blocks and warps share them, and the
// epilogue of the GEMMs that add a residual. Only .cu and .cuh files include it.
#include <algorithm>
#include <climits>

#include "kernels/decoder_layer/outputs.cuh"
#include "kernels/gemm/mma/small_m.cuh"

namespace hone {

// y = total + bias + residual in bf16: an epilogue of output.cuh for half = 8 and count = 1; N is a multiple of 8. The
// loads are converted only when the total is complete, so nothing waits for them.
struct ResidualEpilogue {
  __nv_bfloat16* y;
  const __nv_bfloat16 *bias, *residual;
  int64_t y_stride, residual_stride;
  int N;

  template <int>
  struct Extra {
    __nv_bfloat16 bias[2], residual[2];
    __nv_bfloat16* to;
    bool biased, both;  // both: w has the second row range
  };
  template <int half>
  __host__ __device__ int tiles() const {
    return (N + 2 * half - 1) / (2 * half);
  }
  template <int half, int count>
  __device__ Extra<count> fetch(int m, int tile, int r) const {
    static_assert(half == 8);
    const int n = tile * 2 * half + r;
    Extra<count> out;
    out.to = y + m * y_stride + n;
    out.biased = bias;
    out.both = n + half < N;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i == 1 && !out.both) continue;
      if (bias) out.bias[i] = bias[n + i * half];
      out.residual[i] = residual[m * residual_stride + n + i * half];
    }
    return out;
  }
  template <int half, int count>
  __device__ void store(const float (&first)[count], const float (&second)[count], const Extra<count>& extra, int, int,
                        int) const {
    const auto put = [&](int i, float x) {
      if (extra.biased) x += __bfloat162float(extra.bias[i]);
      extra.to[i * half] = __float2bfloat16_rn(x + __bfloat162float(extra.residual[i]));
    };
    put(0, first[0]);
    if (extra.both) put(1, second[0]);
  }
};

// First rows of w of an N tile's two ranges of eight rows. One rule gives row_ranges<8>() of all epilogues.
struct TileRowRanges {
  int a_head, head_rows, paired_heads, partner;  // N tiles and rows per head; heads whose row ranges are apart
  __device__ int2 of(int n_tile) const {
    const int head = n_tile / a_head, j = n_tile - head * a_head;
    const bool paired = head < paired_heads;
    const int first = head * head_rows + j * (paired ? 8 : 16);
    return {first, first + (paired ? partner : 8)};
  }
};
inline TileRowRanges row_ranges_of(const ResidualEpilogue&) { return {INT_MAX, 0, 0, 0}; }
inline TileRowRanges row_ranges_of(const LinearEpilogue&) { return {INT_MAX, 0, 0, 0}; }
inline TileRowRanges row_ranges_of(const SwigluEpilogue& to) { return {INT_MAX, 0, 1, to.F}; }
inline TileRowRanges row_ranges_of(const QkvRopeEpilogue& to) {
  return {to.dim / 16, to.dim, to.heads + to.kv_heads, to.dim / 2};
}

struct PersistentGemm {
  const __nv_bfloat16 *w, *x;
  int64_t w_stride, x_stride;
  TileRowRanges row_ranges;
  GemmSmallMNorm norm;
  int N, K, n_tiles, chunks;
  int warps, tile_slots;   // warps per N tile; N tiles in work at a time in a block
  int buffers;             // buffers for the sums of a slot
  int x_rows, row_chunks;  // rows of x that are loaded, and their chunks; 0 rows: x is that of the GEMM before
  // Experts: tile t belongs to choice t / choice_tiles, or chunk c to choice c / row_chunks. 0: not so.
  int choice_tiles;
  bool chunks_of_choices;
  int64_t matrix;  // elements from an expert's matrix to the next one's
  __host__ __device__ bool routed() const { return choice_tiles > 0 || chunks_of_choices; }
};

// The experts that a layer with one row has chosen, in shared memory.
struct PersistentRouting {
  int* experts = nullptr;      // [k]
  float* weights = nullptr;    // [k]
  Mbarrier* chosen = nullptr;  // one arrival: the experts are known
  int num_choices = 0;
};

struct PersistentLimits {
  static constexpr int warps = 12;           // consumer warps
  static constexpr int static_bytes = 1024;  // limit of static shared memory
};

// Consumer warps, copy warps, and one warp for the grid barrier.
constexpr int chain_threads(int copying) { return 32 * (PersistentLimits::warps + copying + 1); }

// Partitions a GEMM over `blocks` thread blocks and their warps: least time of the busiest warp; among equals the most
// busy warps.
inline void partition_n_tiles(PersistentGemm& product, int blocks) {
  const int n_tiles = (product.n_tiles + blocks - 1) / blocks;  // per block
  int least = INT_MAX, most_busy = 0;
  for (int warps = 1; warps <= std::min(PersistentLimits::warps, product.chunks); ++warps) {
    const int tile_slots = std::min(PersistentLimits::warps / warps, n_tiles), busy = warps * tile_slots;
    const int time = (n_tiles + tile_slots - 1) / tile_slots * ((product.chunks + warps - 1) / warps);
    if (time > least || (time == least && busy <= most_busy)) continue;
    least = time;
    most_busy = busy;
    product.warps = warps;
    product.tile_slots = tile_slots;
    product.buffers = n_tiles > tile_slots ? 2 : 1;
  }
}

}  // namespace hone
