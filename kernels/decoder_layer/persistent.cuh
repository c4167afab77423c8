#pragma once
// Persistent kernel for the ops of a decoder layer between two attentions, for few rows: several GEMMs with their
// epilogues in one launch, with a grid barrier between them. Only .cu and .cuh files include it.
//
// Use       decode passes: decoder_layer_tail of up to max_rows_norm_in_gemm (8) rows (persistent.cu), and
//           moe_layer_tail of one row (moe_layer_tail.cu).
// Tile      8 rows of x by N tiles of 16 rows of w; K chunks of 512, one warp per chunk at a time. partition_n_tiles()
//           assigns N tiles to blocks and chunks to warps.
// Roles     12 consumer warps (mma.sync, reduction, epilogue), 3 or 4 copy warps (cp.async of w), 1 warp for the grid
//           barrier: 512 or 544 threads, 1 block per SM.
// Pipeline  one ring per consumer warp of 1 to 4 smem stages of 4 KB (16 rows by 128 elements), full and empty
//           mbarriers of 32 arrivals each. Rings run ahead across GEMMs.
// Smem      128 bytes alignment + 12 * stages * 4 KB + x (rows of the longest K, rounded up to chunks) + sums + what
//           the layer needs for routing; at most what the device allows a block, less 1 KB. Static: at most 1 KB of
//           mbarriers and row statistics.
// Numerics  K chunks of gemm_cuda_chunk, each from zero, added in ascending order: bits equal small_m.cuh. Each step
//           rounds to bf16 as the separate ops do.
// PDL       triggers dependents and starts the weight copies before griddep_wait(), which consumers and the barrier
//           warp call before they read activations.
// Limits    compute capability 8.0; M <= 8; the grid must be resident at once and own Device::cooperative_barrier().
//
// Weights do not depend on what the kernel computes. Copy warps fill rings in shared memory as far ahead as these
// reach, also with weights of the next GEMM while the blocks still exchange results of this one. Each ring belongs to
// one consumer warp. Several warps share an N tile of 16 rows of w; each computes every `warps`-th chunk of
// gemm_cuda_chunk. Which experts' matrices a mixture multiplies does depend on results: copies of these GEMMs wait
// for the routing, which each block computes for itself. Meanwhile the weights of the last GEMM are prefetched into L2.
//
// A layer is a struct that the kernel takes by value:
//   PersistentGemm products[]; int count, M, x_bytes, sums_bytes; uint32_t* barrier;
//   struct Extras;                                what the epilogues add to the totals, loaded before they are complete
//   template <class Body> __device__ void with_output(int p, Extras&, Body body) const;
//       calls body(epilogue, extra) with that of GEMM p and the place for what it loads (gemm/mma/output.cuh)
//   static constexpr bool routes;                 it has experts, and then
//   __device__ PersistentRouting routing(char* memory) const;    in shared memory after the sums
//   __device__ void route(const PersistentRouting&) const;       one warp
#include <algorithm>
#include <climits>
#include <utility>

#include "kernels/decoder_layer/internal.h"
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

// The experts that a layer with one row has chosen. In shared memory.
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

// The stages of a warp's ring in the order in which it consumes them: GEMM after GEMM, N tile after N tile, chunk after
// chunk. A lane copies 16 bytes of every other row. Rows of experts are looked up by the first copy() that needs them.
template <class Layer>
class WeightStages {
 public:
  static constexpr int depth = 128, bytes = 16 * depth * 2,
                       a_chunk = static_cast<int>(gemm_cuda_chunk) / depth;  // depth: K extent; a_chunk: stages

  __device__ WeightStages(const Layer& chain, const PersistentRouting& routing, int warp, int lane)
      : chain_(chain), routing_(routing), warp_(warp), piece_(lane % a_row), row_(lane / a_row) {
    enter();
  }
  __device__ int product() const { return product_; }  // chain.count past the last stage
  __device__ void next() {
    if (++stage_ < a_chunk) return;
    const PersistentGemm& now = chain_.products[product_];
    stage_ = 0;
    chunk_ += now.warps;
    if (chunk_ < now.chunks) {
      if (Layer::routes && now.chunks_of_choices) found_ = false;
      return;
    }
    chunk_ = first_chunk_;
    n_tile_ += now.tile_slots * static_cast<int>(gridDim.x);
    n_tile_ < n_tiles_ ? find_rows() : enter();
  }
  // Copied by a full warp in the layout of copy_n_tile(). `to` is a multiple of 128.
  __device__ void copy(uint32_t to) {
    const PersistentGemm& now = chain_.products[product_];
    if (Layer::routes && !found_) find_expert_rows();
    const int chunk = Layer::routes && now.chunks_of_choices ? chunk_ % now.row_chunks : chunk_;
    const int column = chunk * static_cast<int>(gemm_cuda_chunk) + stage_ * depth,
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
    found_ = !(Layer::routes && now.routed());
    if (found_) set_rows(now, now.w, n_tile_);
  }
  __device__ void find_expert_rows() {
    const PersistentGemm& now = chain_.products[product_];
    const int choice = now.chunks_of_choices ? chunk_ / now.row_chunks : n_tile_ / now.choice_tiles,
              tile = now.chunks_of_choices ? n_tile_ : n_tile_ - choice * now.choice_tiles;
    set_rows(now, now.w + routing_.experts[choice] * now.matrix, tile);
    found_ = true;
  }
  __device__ void set_rows(const PersistentGemm& now, const __nv_bfloat16* w, int tile) {
    const int2 row_ranges = now.row_ranges.of(tile);
    const auto at = [&](int row) { return w + (row + row_) * now.w_stride + piece_ * 8; };
    first_ = at(row_ranges.x);
    second_ = at(row_ranges.y < now.N ? row_ranges.y : row_ranges.x);  // a range past w repeats the first
  }

  const Layer& chain_;
  const PersistentRouting& routing_;
  int warp_, piece_, row_;
  int product_ = -1, n_tile_ = 0, n_tiles_ = 0, first_chunk_ = 0, chunk_ = 0, stage_ = 0;
  bool found_ = false;
  const __nv_bfloat16 *first_ = nullptr, *second_ = nullptr;  // this lane's address in the N tile's two row ranges
};
inline constexpr int ring_stage_bytes = 16 * 128 * 2;

// Prefetches this block's rows of a GEMM's w into L2. Copy warp `index` of `copying` calls it.
__device__ inline void prefetch_weights(const PersistentGemm& now, int index, int copying, int lane) {
#if __CUDA_ARCH__ >= 900
  for (int i = index * 32 + lane;; i += copying * 32) {
    const int n_tile = static_cast<int>(blockIdx.x) + i / 16 * static_cast<int>(gridDim.x);
    if (n_tile >= now.n_tiles) return;
    const int2 ranges = now.row_ranges.of(n_tile);
    const int r = i % 16, row = r < 8 ? ranges.x + r : ranges.y + r - 8;
    if (row < now.N) hopper::prefetch_l2(now.w + row * now.w_stride, now.K * 2);
  }
#endif
}

// mbarriers of one warp's ring.
template <int Stages>
struct WeightPipeline {
  Mbarrier full[Stages], empty[Stages];
};

// Body of copy warp `index`: fills its share of the rings, each one stage further whenever a stage is empty. No ring
// advances to the next GEMM while another lacks stages of this one: its copies would delay those.
template <class Layer, int Stages, int Copying, int... i>
__device__ inline void fill_rings(const Layer& chain, const PersistentRouting& routing, WeightPipeline<Stages>* rings,
                                  uint32_t memory, int index, int lane, std::integer_sequence<int, i...>) {
  using WeightStages = WeightStages<Layer>;
  WeightStages stages[] = {WeightStages(chain, routing, index + i * Copying, lane)...};
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
  bool waited = !Layer::routes;
  for (int product = earliest(); product < chain.count; product = earliest()) {
    if (!waited && chain.products[product].routed()) {
      const PersistentGemm& last = chain.products[chain.count - 1];
      if (!last.routed()) prefetch_weights(last, index, Copying, lane);
      routing.chosen->wait(0);  // the experts are chosen
      waited = true;
    }
    (copy(stages[i], filled[i], index + i * Copying, product), ...);
  }
}

// Barriers of full warps, whose lanes may have diverged. Ids 1 to PersistentLimits::warps belong to the tile slots.
__device__ inline void warps_barrier_sync(int id, int threads) {
  __syncwarp();
  named_barrier_sync(id, threads);
}
__device__ inline void sync_consumers() {
  warps_barrier_sync(PersistentLimits::warps + 1, PersistentLimits::warps * 32);
}
// Consumer warps and the grid barrier warp.
__device__ inline void sync_consumers_and_grid_warp() {
  warps_barrier_sync(PersistentLimits::warps + 2, (PersistentLimits::warps + 1) * 32);
}

// Body of the grid barrier warp. Between two GEMMs it waits until all blocks have arrived; then all of them see what
// each wrote before. The word is that of Device::cooperative_barrier(): its top bit flips when all have arrived, and
// the other bits are zero again.
__device__ inline void grid_barrier_sync(uint32_t* barrier, int count, int lane) {
  hopper::griddep_wait();
  uint32_t before = 0, now = 0;
  if (lane == 0) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(before) : "l"(barrier) : "memory");
  const uint32_t arrival = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
#pragma unroll 1
  for (int p = 1; p < count; ++p) {
    sync_consumers_and_grid_warp();  // the consumers have stored their results
    if (lane == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(barrier), "r"(arrival) : "memory");
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
      } while (((before ^ now) & 0x80000000u) == 0);
      before = now;
    }
    sync_consumers_and_grid_warp();  // all blocks have arrived; the consumers may read
  }
}

// A thread's share of copying the rows of a GEMM's x to shared memory in 16-byte units: unit u of row r at u ^ (r % 8);
// zero past K.
class ActivationLoader {
 public:
  __device__ ActivationLoader(const PersistentGemm& now, uint32_t shared)
      : first_(now.x),
        from_(now.x + threadIdx.x * 8),
        next_row_(now.x_stride),
        shared_(shared),
        pieces_(now.row_chunks * static_cast<int>(gemm_cuda_chunk) / 8),
        filled_(now.K / 8),
        piece_(static_cast<int>(threadIdx.x)) {
    skip_row_ends();
  }
  // Copies the rows and waits until this thread's copies have landed.
  __device__ void copy(int rows) {
    constexpr int threads = PersistentLimits::warps * 32;
    for (; row_ < rows; piece_ += threads, from_ += threads * 8, skip_row_ends())
      cp_async_streaming(shared_ + static_cast<uint32_t>(row_ * pieces_ + (piece_ ^ (row_ & 7))) * 16,
                         piece_ < filled_ ? from_ : first_, piece_ < filled_ ? 16 : 0);
    cp_async_commit();
    cp_async_wait<0>();
  }

 private:
  __device__ void skip_row_ends() {
    while (piece_ >= pieces_) {
      piece_ -= pieces_;
      ++row_;
      from_ += next_row_ - pieces_ * 8;
    }
  }
  const __nv_bfloat16 *first_, *from_;
  int64_t next_row_;
  uint32_t shared_;
  int pieces_, filled_, piece_, row_ = 0;
};

// The sums of a tile of an expert GEMM whose chunks belong to choices, finished: each choice's total is rounded as its
// product alone, then the choices are added in ascending order, weighted. from: those of row r of the tile's two
// ranges, `half` apart; a chunk's sums are a_chunk apart.
template <int half, class Output>
__device__ inline void combine_choices(const PersistentGemm& now, const PersistentRouting& routing,
                                       const Output& output, const float* from, int a_chunk, int n_tile, int r) {
  float sum[2] = {0, 0};
  for (int c = 0; c < routing.num_choices; ++c) {
    float total[2] = {from[0], from[half]};
    for (int chunk = 1; chunk < now.row_chunks; ++chunk) {
      from += a_chunk;
      total[0] += from[0];
      total[1] += from[half];
    }
    from += a_chunk;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      sum[i] = fmaf(routing.weights[c], output.rounded(total[i], routing.experts[c], n_tile, r + i * half), sum[i]);
  }
  output.store(sum, n_tile, r);
}

// Copying: number of copy warps; each fills an equal share of the rings.
template <class Layer, int Stages, int Copying>
__global__ void __launch_bounds__(chain_threads(Copying), 1)
    persistent_layer_kernel(const __grid_constant__ Layer chain) {
  using namespace hopper;
  constexpr int half = 8, warps = PersistentLimits::warps;
  extern __shared__ char unaligned[];
  __shared__ __align__(16) float squares[8 * RmsNormRows::most_warps];
  __shared__ WeightPipeline<Stages> rings[warps];
  static_assert(sizeof squares + sizeof rings <= PersistentLimits::static_bytes);
  char* const shared = unaligned + (128 - shared_address(unaligned) % 128) % 128;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0),
            lane = static_cast<int>(threadIdx.x % 32);
  if (warp < warps && lane < Stages) {
    rings[warp].full[lane].init(32);
    rings[warp].empty[lane].init(32);
  }
  char* const x_shared = shared + warps * Stages * ring_stage_bytes;
  float* const all_sums = reinterpret_cast<float*>(x_shared + chain.x_bytes);
  PersistentRouting routing;
  if constexpr (Layer::routes) {
    routing = chain.routing(x_shared + chain.x_bytes + chain.sums_bytes);
    if (threadIdx.x == 0) routing.chosen->init(1);
  }
  griddep_launch_dependents();
  __syncthreads();  // mbarriers are initialized
  // w is constant during a pass, so it may be read before the kernel before has ended.
  if (warp == warps + Copying) return grid_barrier_sync(chain.barrier, chain.count, lane);
  if (warp >= warps)
    return fill_rings<Layer, Stages, Copying>(chain, routing, rings, shared_address(shared), warp - warps, lane,
                                              std::make_integer_sequence<int, warps / Copying>());

  const uint32_t ring = shared_address(shared) + static_cast<uint32_t>(warp * Stages * ring_stage_bytes);
  // Rows of x past M repeat the last row; their results are not stored.
  const int M = chain.M, row = min(lane & 7, M - 1), g = lane >> 2, t = lane & 3;
  uint32_t consumed = 0;
  typename Layer::Extras extras;
#pragma unroll 1
  for (int p = 0; p < chain.count; ++p) {
    const PersistentGemm now = chain.products[p];
    // Overlap with the grid barrier: work that needs no other block.
    if (p == 0)
      griddep_wait();
    else
      sync_consumers_and_grid_warp();  // the grid barrier warp may announce this block's results
    const int slot = warp / now.warps, first_chunk = warp - slot * now.warps, thread = first_chunk * 32 + lane;
    const int threads =
        min(now.warps, warps - slot * now.warps) * 32;  // the last slot may have fewer warps; it has no N tiles
    const int chunks = now.chunks, all_n_tiles = now.n_tiles, n_tiles = slot < now.tile_slots ? all_n_tiles : 0,
              a_chunk = M * 2 * half;  // sums per chunk
    const int first = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x),
              step = now.tile_slots * static_cast<int>(gridDim.x);
    const uint32_t row_bytes = static_cast<uint32_t>(now.row_chunks * static_cast<int>(gemm_cuda_chunk) * 2),
                   x_row = shared_address(x_shared) + static_cast<uint32_t>(row) * row_bytes;
    float* to = all_sums + slot * now.buffers * chunks * a_chunk;
    uint4 factors[2];
    if (now.norm.weight)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = (static_cast<int>(threadIdx.x) + i * warps * 32) * 8;
        factors[i] = at < now.K ? *reinterpret_cast<const uint4*>(now.norm.weight + at) : uint4{};
      }
    const auto fetch = [&](int n_tile) {
      if (n_tile < n_tiles && thread < half * M)
        chain.with_output(p, extras, [&](const auto& output, auto& extra) {
          extra = output.template fetch<half, 1>(thread >> 3, n_tile, thread & 7);
        });
    };
    if (!(Layer::routes && now.routed())) fetch(first);
    ActivationLoader x(now, shared_address(x_shared));
    if (p > 0) sync_consumers_and_grid_warp();  // the grid barrier has completed
    if constexpr (Layer::routes)
      if (now.choice_tiles > 0) {
        if (warp == 0) {
          chain.route(routing);
          if (lane == 0) routing.chosen->arrive();
        }
        sync_consumers();  // the experts are chosen
      }
    if (now.x_rows > 0) {
      x.copy(now.x_rows);
      sync_consumers();  // x is in shared memory
    }
    if (now.norm.weight) {
      const int pieces = now.row_chunks * static_cast<int>(gemm_cuda_chunk) / 8;
      const auto at = [&](int r, int piece) {
        return reinterpret_cast<uint4*>(x_shared) + r * pieces + (piece ^ (r & 7));
      };
      norm_rows(at, M, now.K, now.norm.shape, now.norm.eps, factors, squares, warps * 32, sync_consumers);
      sync_consumers();  // x is normed
    }
    int odd = 0;
    // All tile slots loop as often as the first, which has the most N tiles: racecheck of compute-sanitizer reports
    // false hazards otherwise.
#pragma unroll 1
    for (int n_tile = first, of_first = static_cast<int>(blockIdx.x); of_first < all_n_tiles;
         n_tile += step, of_first += step, odd ^= 1, to += odd ? chunks * a_chunk : -chunks * a_chunk) {
      if (n_tile > first && !(Layer::routes && now.routed())) fetch(n_tile);
#pragma unroll 1
      for (int chunk = first_chunk; n_tile < n_tiles && chunk < chunks; chunk += now.warps) {
        float d[4] = {};
        int x_of = row, x_chunk = chunk;  // row of x, and chunk of it
        if constexpr (Layer::routes)
          if (now.chunks_of_choices) {
            x_of = chunk / now.row_chunks;
            x_chunk = chunk - x_of * now.row_chunks;
          }
        const uint32_t x_at =
            Layer::routes ? shared_address(x_shared) + static_cast<uint32_t>(x_of) * row_bytes : x_row;
#pragma unroll 1
        for (int stage = 0; stage < WeightStages<Layer>::a_chunk; ++stage) {
          const uint32_t place = consumed % Stages;
          rings[warp].full[place].wait(consumed / Stages & 1);  // w of the stage has landed
          const uint32_t from = ring + place * ring_stage_bytes + static_cast<uint32_t>((lane & 15) * 128);
          const int piece = x_chunk * (static_cast<int>(gemm_cuda_chunk) / 8) +
                            stage * (WeightStages<Layer>::depth / 8) + (lane >> 3);
#pragma unroll
          for (int s = 0; s < WeightStages<Layer>::depth / 16; s += 2) {
            uint32_t b[2][2];
            ldmatrix_x4(x_at + static_cast<uint32_t>(((piece + 2 * s) ^ (x_of & 7)) << 4), b[0][0], b[0][1], b[1][0],
                        b[1][1]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              uint32_t a[4];
              load_strip(a, from, s + i, lane);
              mma::mma_bf16(d, a, b[i]);
            }
          }
          rings[warp].empty[place].arrive();
          ++consumed;
        }
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (2 * t + e % 2 < M) to[chunk * a_chunk + (2 * t + e % 2) * 2 * half + g + e / 2 * 8] = d[e];
      }
      warps_barrier_sync(slot + 1, threads);  // the warps of this N tile have stored their sums
      if (n_tile >= n_tiles) continue;
      // Reduction and epilogue.
      if constexpr (Layer::routes)
        if (now.chunks_of_choices) {
          if (thread < half) combine_choices<half>(now, routing, chain.down, to + thread, a_chunk, n_tile, thread);
          continue;
        }
      for (int e = thread; e < half * M; e += threads) {
        const int m = e >> 3, r = e & 7;
        const float* from = to + m * 2 * half + r;
        float total[2][1] = {{from[0]}, {from[half]}};
        constexpr int at_once = 6;
        for (int c = 1; c < chunks; c += at_once) {
          float sums[at_once][2];
#pragma unroll
          for (int i = 0; i < at_once; ++i)
            if (from += a_chunk; c + i < chunks) {
              sums[i][0] = from[0];
              sums[i][1] = from[half];
            }
#pragma unroll
          for (int i = 0; i < at_once; ++i)
            if (c + i < chunks) {
              total[0][0] += sums[i][0];
              total[1][0] += sums[i][1];
            }
        }
        if constexpr (Layer::routes)
          if (now.choice_tiles > 0) {
            const int choice = n_tile / now.choice_tiles;
            chain.gated.store(total[0][0], total[1][0], choice, routing.experts[choice],
                              n_tile - choice * now.choice_tiles, r);
            continue;
          }
        chain.with_output(p, extras, [&](const auto& output, auto& extra) {
          if (e != thread) extra = output.template fetch<half, 1>(m, n_tile, r);
          output.template store<half, 1>(total[0], total[1], extra, m, n_tile, r);
        });
      }
    }
  }
}

// The steps of a layer that both layers have on the host.

// A GEMM of a layer with M rows.
template <class Output>
PersistentGemm persistent_gemm(const Tensor& x, const RmsNormWeights& norm, const GemmWeights& product,
                               const Output& output, int M) {
  PersistentGemm out{};
  out.w = numbers<const __nv_bfloat16>(product.w);
  out.x = numbers<const __nv_bfloat16>(x);
  out.w_stride = product.w.row_stride;
  out.x_stride = x.row_stride;
  out.row_ranges = row_ranges_of(output);
  if (norm.weight) {
    out.norm.weight = numbers<const __nv_bfloat16>(norm.weight);
    out.norm.eps = norm.eps;
    out.norm.shape = RmsNormRows::shape(product.w.dim(1), 8);
  }
  out.N = static_cast<int>(product.w.dim(0));
  out.K = static_cast<int>(product.w.dim(1));
  out.n_tiles = output.template tiles<8>();
  out.chunks = (out.K + static_cast<int>(gemm_cuda_chunk) - 1) / static_cast<int>(gemm_cuda_chunk);
  out.x_rows = M;
  out.row_chunks = out.chunks;
  return out;
}

inline ResidualEpilogue residual_epilogue(const Tensor& y, const GemmWeights& product, const Tensor& residual) {
  return {numbers<__nv_bfloat16>(y),
          numbers<const __nv_bfloat16>(product.bias),
          numbers<const __nv_bfloat16>(residual),
          y.row_stride,
          residual.row_stride,
          static_cast<int>(product.w.dim(0))};
}

// The same with sizes alone, to plan a launch.
inline PersistentGemm planned_gemm(int64_t N, int64_t K, int M) {
  PersistentGemm out{};
  out.N = static_cast<int>(N);
  out.K = static_cast<int>(K);
  out.n_tiles = static_cast<int>((N + 15) / 16);
  out.chunks = static_cast<int>((K + gemm_cuda_chunk - 1) / gemm_cuda_chunk);
  out.x_rows = M;
  out.row_chunks = out.chunks;
  return out;
}

// The last GEMM of a layer: q, k and v of the next one, if there is one. Its epilogue applies RoPE and writes the
// cache. Where q and k have norms, or RoPE is not that of the epilogue, it writes rows that qkv_forward finishes.
struct NextProjection {
  QkvRopeCache args;
  bool in_chain = false, rotates = false;
  QkvRopeEpilogue heads{};

  NextProjection(const OpBase& op, const Tensor& x, const QkvProjection& next) {
    args.x = x;
    args.to = next;
    if (!next.q || !next.norm.weight) return;
    rotates = fuses_heads(args);
    in_chain = rotates || fuses(x, next.norm, next.qkv);
    if (rotates) heads = heads_output(op, args);
  }
  // The rows that qkv_forward reads, in scratch memory; empty if it is not called.
  Tensor take_qkv(Context& context) const {
    if (!in_chain || rotates) return {};
    return context.scratch().take(args.x.dtype, {args.x.dim(0), args.to.qkv.w.dim(0)});
  }
  LinearEpilogue linear(const Tensor& qkv) const {
    LinearEpilogue out{};
    if (!qkv) return out;
    out.to = GemmEpilogue(qkv, args.to.qkv.bias, Tensor());
    out.N = static_cast<int>(args.to.qkv.w.dim(0));
    return out;
  }
  PersistentGemm gemm(int M) const {
    return rotates ? persistent_gemm(args.x, args.to.norm, args.to.qkv, heads, M)
                   : persistent_gemm(args.x, args.to.norm, args.to.qkv, linear_tiles(), M);
  }
  // Queues what the layer's kernel did not compute.
  void finish(Context& context, const Tensor& qkv) const {
    if (!args.to.q) return;
    if (!in_chain) return qkv_rope_cache(context, args);
    if (!rotates) qkv_rope_cache_from(context, args.to, qkv);
  }

 private:
  LinearEpilogue linear_tiles() const {
    LinearEpilogue out{};
    out.N = static_cast<int>(args.to.qkv.w.dim(0));
    return out;
  }
};

// Work of the busiest of `blocks` thread blocks: N tiles times K.
template <class Layer>
int64_t largest_share(const Layer& chain, int blocks) {
  int64_t share = 0;
  for (int p = 0; p < chain.count; ++p)
    share += int64_t{(chain.products[p].n_tiles + blocks - 1) / blocks} * chain.products[p].chunks;
  return share;
}

// Leaves a few SMs free if that costs the others at most 15% more work: the attention kernel that follows can then
// start early.
template <class Layer>
int num_blocks(const Layer& chain, int all) {
  const int fewer = std::max(all - 8, 1);
  int n_tiles = 1;
  for (int p = 0; p < chain.count; ++p) n_tiles = std::max(n_tiles, chain.products[p].n_tiles);
  return std::min(n_tiles, largest_share(chain, fewer) * 20 <= largest_share(chain, all) * 23 ? fewer : all);
}

// Partitions the GEMMs over the blocks. Returns the shared-memory bytes needed besides the rings and routing.
template <class Layer>
int partition(Layer& chain, int blocks) {
  for (int p = 0; p < chain.count; ++p) {
    PersistentGemm& product = chain.products[p];
    partition_n_tiles(product, blocks);
    chain.x_bytes = std::max(
        chain.x_bytes, std::max(product.x_rows, chain.M) * product.row_chunks * static_cast<int>(gemm_cuda_chunk) * 2);
    chain.sums_bytes =
        std::max(chain.sums_bytes, product.tile_slots * product.buffers * product.chunks * chain.M * 16 * 4);
  }
  return 128 + chain.x_bytes + chain.sums_bytes;
}

// A kernel whose rings fit shared memory. Even rings of one stage are faster than the separate steps.
template <class Layer>
struct PersistentLaunch {
  void (*kernel)(Layer) = nullptr;  // null: none fits
  int threads = 0, bytes = 0, stages = 0;

  static int most_bytes() { return max_shared_bytes() - PersistentLimits::static_bytes; }
  explicit PersistentLaunch(int other_bytes) {
    fits<4, 3>(other_bytes) || fits<3, 4>(other_bytes) || fits<2, 4>(other_bytes) || fits<1, 4>(other_bytes);
  }
  // True if every SM can hold a block: the blocks of a grid wait for each other.
  bool is_resident() const {
    if (!kernel || !device_limits().cooperative_launch) return false;
    allow_shared_memory(kernel, static_cast<size_t>(most_bytes()));
    int blocks = 0;
    HONE_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, static_cast<size_t>(bytes)));
    return blocks > 0;
  }
  // Queues the layer; false if this stream does not own the device's cooperative barrier.
  bool run(Context& context, Layer& chain, int blocks) const {
    const CooperativeBarrier barrier = context.device().cooperative_barrier(context.stream());
    if (!barrier.word || blocks > barrier.most_blocks) return false;
    chain.barrier = barrier.word;
    launch_pdl(cuda_stream(context), kernel, {static_cast<unsigned>(blocks)}, threads, bytes, 1, chain);
    return true;
  }

 private:
  template <int Stages, int Copying>
  bool fits(int other_bytes) {
    const int all = other_bytes + PersistentLimits::warps * Stages * ring_stage_bytes;
    if (all > most_bytes()) return false;
    kernel = persistent_layer_kernel<Layer, Stages, Copying>;
    threads = chain_threads(Copying);
    bytes = all;
    stages = Stages;
    return true;
  }
};

}  // namespace hone
