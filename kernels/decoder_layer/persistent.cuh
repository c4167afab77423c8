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
// Limits    compute capability 8.0; M <= 8; K a multiple of 8; the grid must be resident at once and own
//           Device::cooperative_barrier().
//
// Weights do not depend on what the kernel computes. Copy warps fill rings in shared memory as far ahead as these
// reach, also with weights of the next GEMM while the blocks still exchange results of this one. Each ring belongs to
// one consumer warp. Several warps share an N tile of 16 rows of w; each computes every `warps`-th chunk of
// gemm_cuda_chunk. Which experts' matrices a mixture multiplies does depend on results: copies of these GEMMs wait
// for the routing, which each block computes for itself.
//
// A layer is a struct that the kernel takes by value:
//   PersistentGemm products[]; int count, M, x_bytes, sums_bytes; uint32_t* barrier;
//   struct Extras;                                what the epilogues add to the totals, loaded before they are complete
//   template <class Body> __device__ void with_output(int p, Extras&, Body body) const;
//       calls body(epilogue, extra) with that of GEMM p and the place for what it loads (gemm/mma/output.cuh)
//   static constexpr bool routes;                 it has experts. Then M is 1, and it has:
//   __device__ PersistentRouting routing(char* memory) const;    in shared memory after the sums
//   __device__ void route(const PersistentRouting&) const;       chooses the experts; one warp calls it
//   gated.store(gate, up, choice, expert, tile, r)               the epilogue of the GEMM whose tiles belong to choices
//   down.rounded(total, expert, tile, n), down.store(sum[2], tile, r)   that of the GEMM whose chunks belong to choices
#include "kernels/decoder_layer/persistent_rings.cuh"

namespace hone {

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

// d += a chunk of w, which arrives in the warp's ring stage by stage, times rows of x in shared memory. `ring`: memory
// of stage 0. x_at: this lane's row of x, whose 16-byte unit u is at u ^ swizzle; first_unit: that of the chunk.
template <int Stages, int a_chunk, int depth>
__device__ inline void multiply_chunk(float (&d)[4], WeightPipeline<Stages>& barriers, uint32_t ring,
                                      uint32_t& consumed, uint32_t x_at, int first_unit, int swizzle, int lane) {
#pragma unroll 1
  for (int stage = 0; stage < a_chunk; ++stage) {
    const uint32_t place = consumed % Stages;
    barriers.full[place].wait(consumed / Stages & 1);  // w of the stage has landed
    const uint32_t from = ring + place * ring_stage_bytes + static_cast<uint32_t>((lane & 15) * 128);
    const int unit = first_unit + stage * (depth / 8) + (lane >> 3);
#pragma unroll
    for (int s = 0; s < depth / 16; s += 2) {
      uint32_t b[2][2];
      hopper::ldmatrix_x4(x_at + static_cast<uint32_t>(((unit + 2 * s) ^ swizzle) << 4), b[0][0], b[0][1], b[1][0],
                          b[1][1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t a[4];
        load_strip(a, from, s + i, lane);
        mma::mma_bf16(d, a, b[i]);
      }
    }
    barriers.empty[place].arrive();
    ++consumed;
  }
}

// The sums of all chunks, added in ascending order: of a row of the tile and of the one `half` further. A chunk's sums
// are a_chunk apart. They are loaded a few at once, so that a load does not wait for an addition.
template <int half>
__device__ inline void add_chunks(float (&total)[2][1], const float* from, int chunks, int a_chunk) {
  constexpr int at_once = 6;
  total[0][0] = from[0];
  total[1][0] = from[half];
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
}

// This thread's factors of the norm of x. They are constant, so they may be loaded before x is complete.
struct NormFactors {
  uint4 units[2];
  __device__ explicit NormFactors(const PersistentGemm& now) {
    if (!now.norm.weight) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = (static_cast<int>(threadIdx.x) + i * PersistentLimits::warps * 32) * 8;
      units[i] = at < now.K ? *reinterpret_cast<const uint4*>(now.norm.weight + at) : uint4{};
    }
  }
};

// Norms the rows of x in shared memory.
__device__ inline void norm_activations(const PersistentGemm& now, char* x, int M, const NormFactors& factors,
                                        float* squares) {
  const int units = now.row_chunks * static_cast<int>(gemm_cuda_chunk) / 8;
  const auto at = [&](int r, int unit) { return reinterpret_cast<uint4*>(x) + r * units + (unit ^ (r & 7)); };
  norm_rows(at, M, now.K, now.norm.shape, now.norm.eps, factors.units, squares, PersistentLimits::warps * 32,
            sync_consumers);
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
    const NormFactors factors(now);
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
      norm_activations(now, x_shared, M, factors, squares);
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
        multiply_chunk<Stages, WeightStages<Layer>::a_chunk, WeightStages<Layer>::depth>(
            d, rings[warp], ring, consumed, x_at, x_chunk * (static_cast<int>(gemm_cuda_chunk) / 8), x_of & 7, lane);
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
        float total[2][1];
        add_chunks<half>(total, to + m * 2 * half + r, chunks, a_chunk);
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

}  // namespace hone
