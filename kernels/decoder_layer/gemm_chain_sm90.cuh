#pragma once
// Persistent kernel of decoder_layer_tail for few rows on Hopper: up to four GEMMs with their epilogues in one launch,
// with a grid barrier between them. Only .cu and .cuh files include it.
//
// Use       decode passes of up to max_rows_norm_in_gemm (8) rows (persistent_sm90.cu).
// Tile      8 rows of x by N tiles of 16 rows of w; K chunks of 512, one warp per chunk at a time. partition_n_tiles()
//           assigns N tiles to blocks and chunks to warps.
// Roles     12 consumer warps (mma.sync, reduction, epilogue), 3 or 4 copy warps (cp.async of w), 1 warp for the grid
//           barrier: 512 or 544 threads, 1 block per SM.
// Pipeline  one ring per consumer warp of 1 to 4 smem stages of 4 KB (16 rows by 128 elements), full and empty
//           mbarriers of 32 arrivals each. Rings run ahead across GEMMs.
// Smem      128 bytes alignment + 12 * stages * 4 KB + x (M rows of the longest K, rounded up to chunks) + sums; at
//           most 226 KB. Static: mbarriers and row statistics of the norm.
// Numerics  K chunks of gemm_cuda_chunk, each from zero, added in ascending order: bits equal small_m.cuh. Each step
//           rounds to bf16 as the separate ops do.
// PDL       triggers dependents and starts the weight copies before griddep_wait(), which consumers and the barrier
//           warp call before they read activations.
// Limits    sm_90a; M <= 8; the grid must be resident at once and own Device::cooperative_barrier().
#include "kernels/decoder_layer/gemm_chain_rings_sm90.cuh"

namespace hone {

// Barriers of full warps, whose lanes may have diverged. Ids 1 to PersistentLayer::warps belong to the tile slots.
__device__ inline void warps_barrier_sync(int id, int threads) {
  __syncwarp();
  hopper::named_barrier_sync(id, threads);
}
__device__ inline void sync_consumers() { warps_barrier_sync(PersistentLayer::warps + 1, PersistentLayer::warps * 32); }
// Consumer warps and the grid barrier warp.
__device__ inline void sync_consumers_and_grid_warp() {
  warps_barrier_sync(PersistentLayer::warps + 2, (PersistentLayer::warps + 1) * 32);
}

// Body of the grid barrier warp. Between two GEMMs it waits until all blocks have arrived; then all of them see what
// each wrote before. The word is that of Device::cooperative_barrier(): its top bit flips when all have arrived, and
// the other bits are zero again.
__device__ inline void grid_barrier_sync(const PersistentLayer& chain, int lane) {
  hopper::griddep_wait();
  uint32_t before = 0, now = 0;
  if (lane == 0) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(before) : "l"(chain.barrier) : "memory");
  const uint32_t arrival = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
#pragma unroll 1
  for (int p = 1; p < chain.count; ++p) {
    sync_consumers_and_grid_warp();  // the consumers have stored their results
    if (lane == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(chain.barrier), "r"(arrival) : "memory");
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(chain.barrier) : "memory");
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
        pieces_(now.chunks * static_cast<int>(gemm_cuda_chunk) / 8),
        filled_(now.K / 8),
        piece_(static_cast<int>(threadIdx.x)) {
    skip_row_ends();
  }
  // Copies all rows and waits until this thread's copies have landed.
  __device__ void copy(int M) {
    constexpr int threads = PersistentLayer::warps * 32;
    for (; row_ < M; piece_ += threads, from_ += threads * 8, skip_row_ends())
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

// Copying: number of copy warps; each fills an equal share of the rings.
template <int Stages, int Copying>
__global__ void __launch_bounds__(chain_threads(Copying), 1)
    persistent_layer_kernel(const __grid_constant__ PersistentLayer chain) {
  using namespace hopper;
  constexpr int half = 8;
  extern __shared__ char unaligned[];
  __shared__ __align__(16) float squares[8 * RmsNormRows::most_warps];
  __shared__ WeightPipeline<Stages> rings[PersistentLayer::warps];
  static_assert(sizeof squares + sizeof rings + PersistentLayer::all_bytes <= 227 * 1024);
  char* const shared = unaligned + (128 - shared_address(unaligned) % 128) % 128;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0),
            lane = static_cast<int>(threadIdx.x % 32);
  if (warp < PersistentLayer::warps && lane < Stages) {
    rings[warp].full[lane].init(32);
    rings[warp].empty[lane].init(32);
  }
  griddep_launch_dependents();
  __syncthreads();  // mbarriers are initialized
  // w is constant during a pass, so it may be read before the kernel before has ended.
  if (warp == PersistentLayer::warps + Copying) return grid_barrier_sync(chain, lane);
  if (warp >= PersistentLayer::warps)
    return fill_rings<Stages, Copying>(chain, rings, shared_address(shared), warp - PersistentLayer::warps, lane,
                                       std::make_integer_sequence<int, PersistentLayer::warps / Copying>());

  const uint32_t ring = shared_address(shared) + static_cast<uint32_t>(warp * Stages * WeightStages::bytes);
  char* const x_shared = shared + PersistentLayer::warps * Stages * WeightStages::bytes;
  float* const all_sums = reinterpret_cast<float*>(x_shared + chain.x_bytes);
  // Rows of x past M repeat the last row; their results are not stored.
  const int M = chain.M, row = min(lane & 7, M - 1), g = lane >> 2, t = lane & 3;
  uint32_t consumed = 0;
  ResidualEpilogue::Extra<1> sum_extra;
  SwigluEpilogue::Extra<1> gated_extra;
  QkvRopeEpilogue::Extra<1> heads_extra;
#pragma unroll 1
  for (int p = 0; p < chain.count; ++p) {
    const PersistentGemm now = chain.products[p];
    const auto with_output = [&](auto body) {
      if (p == 1)
        body(chain.gated, gated_extra);
      else if (p == 3)
        body(chain.heads, heads_extra);
      else
        body(p == 0 ? chain.output : chain.down, sum_extra);
    };
    // Overlap with the grid barrier: work that needs no other block.
    if (p == 0)
      griddep_wait();
    else
      sync_consumers_and_grid_warp();  // the grid barrier warp may announce this block's results
    const int slot = warp / now.warps, first_chunk = warp - slot * now.warps, thread = first_chunk * 32 + lane;
    const int threads = min(now.warps, PersistentLayer::warps - slot * now.warps) *
                        32;  // the last slot may have fewer warps; it has no N tiles
    const int chunks = now.chunks, all_n_tiles = now.n_tiles, n_tiles = slot < now.tile_slots ? all_n_tiles : 0,
              a_chunk = M * 2 * half;  // sums per chunk
    const int first = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x),
              step = now.tile_slots * static_cast<int>(gridDim.x);
    const uint32_t x_row =
        shared_address(x_shared) + static_cast<uint32_t>(row * chunks * static_cast<int>(gemm_cuda_chunk) * 2);
    float* to = all_sums + slot * now.buffers * chunks * a_chunk;
    uint4 factors[2];
    if (now.norm.weight)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = (static_cast<int>(threadIdx.x) + i * PersistentLayer::warps * 32) * 8;
        factors[i] = at < now.K ? *reinterpret_cast<const uint4*>(now.norm.weight + at) : uint4{};
      }
    const auto fetch = [&](int n_tile) {
      if (n_tile < n_tiles && thread < half * M)
        with_output([&](const auto& output, auto& extra) {
          extra = output.template fetch<half, 1>(thread >> 3, n_tile, thread & 7);
        });
    };
    fetch(first);
    ActivationLoader x(now, shared_address(x_shared));
    if (p > 0) sync_consumers_and_grid_warp();  // the grid barrier has completed
    x.copy(M);
    sync_consumers();  // x is in shared memory
    if (now.norm.weight) {
      const int pieces = chunks * static_cast<int>(gemm_cuda_chunk) / 8;
      const auto at = [&](int r, int piece) {
        return reinterpret_cast<uint4*>(x_shared) + r * pieces + (piece ^ (r & 7));
      };
      norm_rows(at, M, now.K, now.norm.shape, now.norm.eps, factors, squares, PersistentLayer::warps * 32,
                sync_consumers);
      sync_consumers();  // x is normed
    }
    int odd = 0;
    // All tile slots loop as often as the first, which has the most N tiles: racecheck of compute-sanitizer reports
    // false hazards otherwise.
#pragma unroll 1
    for (int n_tile = first, of_first = static_cast<int>(blockIdx.x); of_first < all_n_tiles;
         n_tile += step, of_first += step, odd ^= 1, to += odd ? chunks * a_chunk : -chunks * a_chunk) {
      if (n_tile > first) fetch(n_tile);
#pragma unroll 1
      for (int chunk = first_chunk; n_tile < n_tiles && chunk < chunks; chunk += now.warps) {
        float d[4] = {};
#pragma unroll 1
        for (int stage = 0; stage < WeightStages::a_chunk; ++stage) {
          const uint32_t place = consumed % Stages;
          rings[warp].full[place].wait(consumed / Stages & 1);  // w of the stage has landed
          const uint32_t from = ring + place * WeightStages::bytes + static_cast<uint32_t>((lane & 15) * 128);
          const int piece =
              chunk * (static_cast<int>(gemm_cuda_chunk) / 8) + stage * (WeightStages::depth / 8) + (lane >> 3);
#pragma unroll
          for (int s = 0; s < WeightStages::depth / 16; s += 2) {
            uint32_t b[2][2];
            ldmatrix_x4(x_row + static_cast<uint32_t>(((piece + 2 * s) ^ (row & 7)) << 4), b[0][0], b[0][1], b[1][0],
                        b[1][1]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              uint32_t a[4];
              load_strip(a, from, s + i, lane);
              mma_k16(d, a, b[i]);
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
        with_output([&](const auto& output, auto& extra) {
          if (e != thread) extra = output.template fetch<half, 1>(m, n_tile, r);
          output.template store<half, 1>(total[0], total[1], extra, m, n_tile, r);
        });
      }
    }
  }
}

}  // namespace hone
