#pragma once
// Products of experts with few rows each: every warp streams strips of 16 rows of w through its own smem ring and
// multiplies them by the rows of one tile. routed_experts' body "few_rows" is made of it. Only .cu files include it.
//
// Use       decode passes: at most max_few_choices choices, few of them per expert.
// Tile      16 rows of w (a strip) by 8 * Groups rows of x, all of K. An item is one strip for one tile of an expert.
// Roles     all warps alike and independent: a warp copies its own w and x, and keeps all sums in registers.
// Pipeline  a ring of 2, 3, 4 or 6 smem stages per warp (cp.async), which continues from one item of the warp to the
//           next. A stage is 16 rows of w and the tile's rows of x by 128 elements along K for bf16 weights, by 256
//           for 8-bit ones.
// Smem      per warp and stage: 4 KB of w, and 256 or 512 bytes of x per row (StripPipeline::bytes_of_stage).
// Numerics  K chunks of gemm_cuda_chunk, each one f32 accumulator from zero, added in ascending order: the bits of
//           gemm_forward and gemm_quantized.
// PDL       the kernels' (few_rows.cu).
// Limits    rows of x and w 16-byte aligned; K > 0.
#include "kernels/gemm/mma/small_m.cuh"
#include "kernels/moe/routed_experts.h"
#include "kernels/quant/quant_format.cuh"

namespace hone::moe {

// The choices of a few tokens, sorted by expert (kernels/moe/dispatch.h). On the device.
struct FewRouting {
  int4* tiles;               // {expert, first position, rows, 0}: the rows of each expert, cut into tiles
  int32_t* num_tiles;        // [1]
  int32_t *tokens, *places;  // [P] token of each position; [T, k] position of each choice
  float* weights;            // [T, k]
};
inline constexpr int64_t max_few_tokens = 128, max_few_choices = 1024;

// Chooses the experts of each token and sorts the choices, in one launch. Returns false and does nothing if the router
// needs more shared memory than a block has.
bool route_few(Context& context, const RoutedExperts& args, const FewRouting& to, int tile_rows);

// Strips of bf16 weights.
struct Bf16Strip {
  using Number = __nv_bfloat16;
  static constexpr int depth = 128, bytes = 16 * depth * 2;
  static constexpr bool scaled = false;
  static __device__ void copy(uint32_t to, const Number* w, int64_t stride, int2 ranges, int k, int K, int N,
                              int lane) {
    copy_n_tile<depth>(to, w, stride, ranges, k, K, N, lane);
  }
  static __device__ void load(uint32_t (&a)[4], uint32_t stage, int step, int lane) {
    load_strip(a, stage + static_cast<uint32_t>(lane % 16 * 128), step, lane);
  }
};

// Strips of 8-bit weights. Rows of a stage are units of 16 bytes; unit u of row r lies at u ^ r % 8.
template <class Format>
struct ByteStrip {
  using Number = uint8_t;
  static constexpr int depth = 256, bytes = 16 * depth;
  static constexpr bool scaled = true;
  static __device__ void copy(uint32_t to, const Number* w, int64_t stride, int2 ranges, int k, int K, int N,
                              int lane) {
    const int unit = lane % 16, count = min(16, max(0, K - k - unit * 16));
    const Number* const from = w + (count > 0 ? k + unit * 16 : 0);
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      const int r = i + lane / 16, row = min(i < 8 ? ranges.x + r : ranges.y + r - 8, N - 1);
      cp_async_streaming(to + static_cast<uint32_t>(r * depth + ((unit ^ (r & 7)) << 4)), from + int64_t{row} * stride,
                         count);
    }
  }
  static __device__ void load(uint32_t (&a)[4], uint32_t stage, int step, int lane) {
    const int g = lane / 4;
    load_left<Format>(a, stage + static_cast<uint32_t>(g * depth + ((step ^ (g & 7)) << 4)), 8 * depth,
                      static_cast<uint32_t>(lane));
  }
};

// The operands of a product, as the kernels take them.
struct StripProduct {
  const void* w;              // [E, N, K]
  const float* scales;        // [E, N] of 8-bit weights
  const __nv_bfloat16* bias;  // [E, N] or nullptr
  const __nv_bfloat16* x;     // rows of K
  const int32_t* rows;        // of x, by position; nullptr: row p is position p
  int64_t matrix, x_stride;
  int N, K;
  int tile_rows;  // of a tile, at most
  // Above 0: strip s is the 8 rows from 8 * s (gate) and the 8 rows from second + 8 * s (up). 0: 16 adjacent rows.
  int second;
  __device__ int2 ranges(int strip) const {
    return second > 0 ? make_int2(strip * 8, second + strip * 8) : make_int2(strip * 16, strip * 16 + 8);
  }
};

// The items of a warp: first, first + step, ... below count. Item i is strip base + i % strips of tile i / strips.
struct StripItems {
  const int4* tiles;
  int count, strips, base, first, step;
  int sure;  // tiles that exist with any routing: the first one may be read before `count` has arrived
};

template <class Strip, int Groups, int Stages>
struct StripPipeline {
  static constexpr int depth = Strip::depth, row_bytes = depth * 2,
                       chunk_stages = static_cast<int>(gemm_cuda_chunk) / depth;
  using Sums = float[Groups][4];
  // What is copied next.
  struct Cursor {
    int item, stage;
    int4 tile;
    int row;      // of x, for row `lane` of the tile
    int2 ranges;  // of the item's strip
  };
  StripProduct of;
  StripItems items;
  uint32_t ring;
  int stage_bytes, lane, stages;  // stages: per item
  Cursor ahead;

  // Of a stage whose tiles have up to this many rows.
  static __host__ __device__ int bytes_of_stage(int rows) { return Strip::bytes + rows * row_bytes; }
  // memory: of all warps' rings.
  __device__ StripPipeline(const StripProduct& product, const StripItems& list, char* memory)
      : of(product),
        items(list),
        ring(mma::shared_address(memory)),
        stage_bytes(bytes_of_stage(product.tile_rows)),
        lane(static_cast<int>(threadIdx.x) % 32),
        stages((product.K + depth - 1) / depth) {
    ring += threadIdx.x / 32 * static_cast<uint32_t>(Stages * stage_bytes);
  }

  // Tiles are read past L1: a line there may be older than the routing of this pass.
  __device__ int4 tile_of(int item) const { return __ldcg(items.tiles + item / items.strips); }
  __device__ int strip_of(int item) const { return items.base + item % items.strips; }
  __device__ void open(Cursor& at) const {
    if (at.item < items.count) at.tile = tile_of(at.item);
    at.ranges = of.ranges(strip_of(at.item));
  }
  __device__ Cursor begin() const {
    Cursor at{items.first, 0, {}, 0, of.ranges(strip_of(items.first))};
    if (items.first / items.strips < items.sure || items.first < items.count) at.tile = tile_of(items.first);
    return at;
  }
  __device__ void find_row(Cursor& at) const {
    at.row = at.tile.y + lane;
    if (of.rows && at.item < items.count && lane < at.tile.z) at.row = __ldcg(of.rows + at.tile.y + lane);
  }
  __device__ bool advance(Cursor& at) const {
    if (++at.stage < stages) return false;
    at.stage = 0;
    at.item += items.step;
    open(at);
    return true;
  }
  __device__ void copy_w(const Cursor& at, int place) const {
    if (at.item >= items.count) return;
    Strip::copy(ring + static_cast<uint32_t>(place * stage_bytes),
                static_cast<const typename Strip::Number*>(of.w) + at.tile.x * of.matrix, of.K, at.ranges,
                at.stage * depth, of.K, of.N, lane);
  }
  // Rows of a stage are units of 16 bytes; unit u of row m lies at u ^ m % 8.
  __device__ void copy_x(const Cursor& at, int place) const {
    constexpr int units = depth / 8, together = 32 / units;
    if (at.item >= items.count) return;
    const uint32_t to = ring + static_cast<uint32_t>(place * stage_bytes + Strip::bytes);
    const int unit = lane % units, k = at.stage * depth + unit * 8, bytes = min(16, max(0, (of.K - k) * 2));
    for (int first = 0; first < at.tile.z; first += together) {
      const int m = first + lane / units, row = __shfl_sync(0xffffffffu, at.row, m);
      if (m < at.tile.z)
        cp_async_bytes(to + static_cast<uint32_t>(m * row_bytes + ((unit ^ (m & 7)) << 4)),
                       of.x + row * of.x_stride + (bytes > 0 ? k : 0), bytes);
    }
  }

  // Fills the ring. x and of.rows must have been written.
  __device__ void start() {
    ahead = begin();
    find_row(ahead);
#pragma unroll
    for (int place = 0; place < Stages; ++place) copy_next(place);
  }
  // Fills the ring with w, calls wait(), and then with x, which is complete after wait(). of.rows must be nullptr.
  template <class Wait>
  __device__ void start_early(Wait wait) {
    const Cursor first = begin();
    ahead = first;
#pragma unroll
    for (int place = 0; place < Stages; ++place) {
      copy_w(ahead, place);
      advance(ahead);
    }
    wait();
    ahead = first;
    find_row(ahead);
#pragma unroll
    for (int place = 0; place < Stages; ++place) {
      copy_x(ahead, place);
      cp_async_commit();
      if (advance(ahead)) find_row(ahead);
    }
  }
  __device__ void copy_next(int place) {
    copy_w(ahead, place);
    copy_x(ahead, place);
    cp_async_commit();
    if (advance(ahead)) find_row(ahead);
  }

  // sums += the stage's product. Rows of x from `rows` on repeat the last one; their sums are not used.
  __device__ void multiply(Sums& sums, uint32_t stage, int rows) const {
#pragma unroll
    for (int s = 0; s < depth / 16; s += 2) {
      uint32_t b[Groups][4];
#pragma unroll
      for (int i = 0; i < Groups; ++i) {
        if (8 * i >= rows) continue;
        const int m = min(8 * i + lane % 8, rows - 1);
        mma::ldmatrix_x4(
            stage + static_cast<uint32_t>(Strip::bytes + m * row_bytes + (((2 * s + lane / 8) ^ (m & 7)) << 4)),
            b[i][0], b[i][1], b[i][2], b[i][3]);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t a[4];
        Strip::load(a, stage, s + j, lane);
#pragma unroll
        for (int i = 0; i < Groups; ++i)
          if (8 * i < rows) mma::mma_bf16(sums[i], a, {b[i][2 * j], b[i][2 * j + 1]});
      }
    }
  }

  // Computes the items. finish(tile, strip, totals): a lane has rows lane / 4 (elements 0, 1) and lane / 4 + 8 (2, 3)
  // of the strip, for rows 8 * i + lane % 4 * 2 and the next one of the tile in totals[i].
  template <class Finish>
  __device__ void run(Finish finish) {
    int place = 0;
    for (int item = items.first; item < items.count; item += items.step) {
      const int4 tile = tile_of(item);
      Sums totals = {}, sums = {};
      for (int s = 0; s < stages; ++s) {
        cp_async_wait<Stages - 1>();
        __syncwarp();  // the stage's copies of all lanes have landed
        multiply(sums, ring + static_cast<uint32_t>(place * stage_bytes), tile.z);
        if (s % chunk_stages == chunk_stages - 1 || s + 1 == stages) {  // the end of a chunk
#pragma unroll
          for (int i = 0; i < Groups; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              totals[i][e] = s < chunk_stages ? sums[i][e] : totals[i][e] + sums[i][e];
              sums[i][e] = 0;
            }
        }
        __syncwarp();  // all lanes have read the stage
        copy_next(place);
        if (++place == Stages) place = 0;
      }
      finish(tile, strip_of(item), totals);
    }
  }

  // An element as the product without fusion stores it: scaled, with its bias, and rounded.
  __device__ float stored(float total, int expert, int n) const {
    if constexpr (Strip::scaled) total *= of.scales[int64_t{expert} * of.N + n];
    if (of.bias) total += __bfloat162float(of.bias[int64_t{expert} * of.N + n]);
    return __bfloat162float(__float2bfloat16_rn(total));
  }
};

}  // namespace hone::moe
