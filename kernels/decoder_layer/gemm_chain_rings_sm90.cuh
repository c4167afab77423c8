#pragma once
// Arguments, work partition and weight pipelines of the persistent layer kernel (gemm_chain_sm90.cuh). Only .cu and
// .cuh files include it.
//
// Weights do not depend on what the kernel computes. Copy warps fill rings in shared memory as far ahead as these
// reach, also with weights of the next GEMM while the blocks still exchange results of this one. Each ring belongs to
// one consumer warp. Several warps share an N tile of 16 rows of w; each computes every `warps`-th chunk of
// gemm_cuda_chunk.
#include <algorithm>
#include <climits>
#include <utility>

#include "kernels/decoder_layer/outputs.cuh"
#include "kernels/gemm/sm90/small_m.cuh"

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
  int warps, tile_slots;  // warps per N tile; N tiles in work at a time in a block
  int buffers;            // buffers for the sums of a slot
};

struct PersistentLayer {
  static constexpr int warps = 12;              // consumer warps
  static constexpr int all_bytes = 226 * 1024;  // limit of dynamic shared memory
  PersistentGemm products[4];                   // GEMMs: attention output, gate_up, down, qkv
  ResidualEpilogue output, down;
  SwigluEpilogue gated;
  QkvRopeEpilogue heads;
  int count, M;
  int x_bytes;  // shared memory of the largest x
  uint32_t* barrier;
};

// Consumer warps, copy warps, and one warp for the grid barrier.
constexpr int chain_threads(int copying) { return 32 * (PersistentLayer::warps + copying + 1); }

// Partitions a GEMM over `blocks` thread blocks and their warps: least time of the busiest warp; among equals the most
// busy warps.
inline void partition_n_tiles(PersistentGemm& product, int blocks) {
  const int n_tiles = (product.n_tiles + blocks - 1) / blocks;  // per block
  int least = INT_MAX, most_busy = 0;
  for (int warps = 1; warps <= std::min(PersistentLayer::warps, product.chunks); ++warps) {
    const int tile_slots = std::min(PersistentLayer::warps / warps, n_tiles), busy = warps * tile_slots;
    const int time = (n_tiles + tile_slots - 1) / tile_slots * ((product.chunks + warps - 1) / warps);
    if (time > least || (time == least && busy <= most_busy)) continue;
    least = time;
    most_busy = busy;
    product.warps = warps;
    product.tile_slots = tile_slots;
    product.buffers = n_tiles > tile_slots ? 2 : 1;
  }
}

// The stages of a warp's ring in the order in which it consumes them: GEMM after GEMM, N tile after N tile, chunk after
// chunk. A lane copies 16 bytes of every other row.
class WeightStages {
 public:
  static constexpr int depth = 128, bytes = 16 * depth * 2,
                       a_chunk = static_cast<int>(gemm_cuda_chunk) / depth;  // depth: K extent; a_chunk: stages

  __device__ WeightStages(const PersistentLayer& chain, int warp, int lane)
      : chain_(chain), warp_(warp), piece_(lane % a_row), row_(lane / a_row) {
    enter();
  }
  __device__ int product() const { return product_; }  // PersistentLayer::count past the last stage
  __device__ void next() {
    if (++stage_ < a_chunk) return;
    const PersistentGemm& now = chain_.products[product_];
    stage_ = 0;
    chunk_ += now.warps;
    if (chunk_ < now.chunks) return;
    chunk_ = first_chunk_;
    n_tile_ += now.tile_slots * static_cast<int>(gridDim.x);
    n_tile_ < n_tiles_ ? find_rows() : enter();
  }
  // Copied by a full warp in the layout of copy_n_tile(). `to` is a multiple of 128.
  __device__ void copy(uint32_t to) const {
    const PersistentGemm& now = chain_.products[product_];
    const int column = chunk_ * static_cast<int>(gemm_cuda_chunk) + stage_ * depth,
              count = column + piece_ * 8 < now.K ? 16 : 0;
    const int64_t step = count > 0 ? together * now.w_stride : 0;
    to += static_cast<uint32_t>(piece_ / 8 * (16 * 128) + row_ * 128 + ((piece_ % 8 ^ row_) << 4));
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const __nv_bfloat16* from = count > 0 ? (half == 0 ? first_ : second_) + column : now.w;
#pragma unroll
      for (uint32_t r = 0; r < 8; r += together, from += step)
        cp_async_streaming((to ^ r << 4) + (half * 8 + r) * 128, from, count);
    }
  }

 private:
  static constexpr int a_row = depth / 8, together = 32 / a_row;  // lanes per row; rows per copy

  // Enters the next GEMM of which this warp has a part.
  __device__ void enter() {
    while (++product_ < chain_.count) {
      const PersistentGemm& now = chain_.products[product_];
      const int slot = warp_ / now.warps;
      first_chunk_ = chunk_ = warp_ - slot * now.warps;
      n_tile_ = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
      n_tiles_ = now.n_tiles;
      if (slot < now.tile_slots && n_tile_ < n_tiles_) return find_rows();
    }
  }
  __device__ void find_rows() {
    const PersistentGemm& now = chain_.products[product_];
    const int2 row_ranges = now.row_ranges.of(n_tile_);
    const auto at = [&](int row) { return now.w + (row + row_) * now.w_stride + piece_ * 8; };
    first_ = at(row_ranges.x);
    second_ = at(row_ranges.y < now.N ? row_ranges.y : row_ranges.x);  // a range past w repeats the first
  }

  const PersistentLayer& chain_;
  int warp_, piece_, row_;
  int product_ = -1, n_tile_ = 0, n_tiles_ = 0, first_chunk_ = 0, chunk_ = 0, stage_ = 0;
  const __nv_bfloat16 *first_ = nullptr, *second_ = nullptr;  // this lane's address in the N tile's two row ranges
};

// mbarriers of one warp's ring.
template <int Stages>
struct WeightPipeline {
  hopper::Barrier full[Stages], empty[Stages];
};

// Body of copy warp `index`: fills its share of the rings, each one stage further whenever a stage is empty. No ring
// advances to the next GEMM while another lacks stages of this one: its copies would delay those.
template <int Stages, int Copying, int... i>
__device__ inline void fill_rings(const PersistentLayer& chain, WeightPipeline<Stages>* rings, uint32_t memory,
                                  int index, int lane, std::integer_sequence<int, i...>) {
  WeightStages stages[] = {WeightStages(chain, index + i * Copying, lane)...};
  uint32_t filled[sizeof...(i)] = {};
  const auto earliest = [&] {
    int product = INT_MAX;
    ((product = min(product, stages[i].product())), ...);
    return product;
  };
  const auto copy = [&](WeightStages& stage, uint32_t& number, int warp, int product) {
    const uint32_t place = number % Stages;
    if (stage.product() > product || !__all_sync(0xffffffffu, rings[warp].empty[place].done((number / Stages & 1) ^ 1)))
      return;
    stage.copy(memory + (static_cast<uint32_t>(warp) * Stages + place) * WeightStages::bytes);
    rings[warp].full[place].arrive_after_copies();
    ++number;
    stage.next();
  };
  for (int product = 0; product < chain.count; product = earliest())
    (copy(stages[i], filled[i], index + i * Copying, product), ...);
}

}  // namespace hone
