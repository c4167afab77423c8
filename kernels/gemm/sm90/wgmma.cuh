#pragma once
// GEMM on Hopper: y = x . w^T by TMA and wgmma with an epilogue, bf16 operands. Only .cu and .cuh files include it.
//
// Use       64 or more rows of x: gemm_forward, the fused projections (pair_store.cuh) and lm_head (logprob_sm90.cu).
// Tile      128 rows of x by 128, 160 or 192 rows of w, K step 64. Persistent: a block loops over tiles. Clusters of 2
//           blocks work on adjacent row tiles; each loads half of w for both (multicast).
// Roles     384 threads. Warpgroups 0 and 1: consumers of 64 rows of x each. Warpgroup 2: warp 8, lane 0 is the
//           producer.
// Pipeline  4 to 6 smem stages: x 16 KB + w 16 to 24 KB; one full and one empty mbarrier each.
// Smem      1 KB alignment + stages * (16 KB + columns * 128 bytes) + 2 epilogue parts + 1 KB: e.g. 226 KB for 6 stages
//           of 128 columns and 210 KB for 4 of 192 with GemmStoreBox; 1 block per SM.
// Numerics  K chunks of gemm_cuda_chunk, each one f32 accumulator from zero, added in ascending order.
// PDL       triggers dependents at the start. For M <= 1024 it prefetches w into the stages before griddep_wait().
// Limits    sm_90a; rows of x and w 16-byte aligned; M, N, K > 0.
//
// An epilogue is a struct that the kernel takes by value:
//   static constexpr int shared_bytes(int columns);   shared memory per warpgroup, aligned to 1024 bytes
//   static constexpr int column_bytes(int columns);   more of it, aligned to 16 bytes
//   template <int Columns> __device__ void begin(GemmPart, m, n);   all threads call it while the tile's wgmmas run
//   template <int Columns> __device__ void finish(GemmPart, float (&total)[Columns / 2], m, n);   all threads
//   __device__ void end(GemmPart);                    after the last tile
//   int up_row;   optional: half of a tile's columns are adjacent rows of w, the other half lies `up_row` rows further
// m and n are the first row and column of the warpgroup's 64 x Columns part; they may lie past M or N. Thread t of the
// warpgroup holds in total[4 * j + e]: row m + t / 32 * 16 + t % 32 / 4 + e / 2 * 8,
// column n + 8 * j + t % 4 * 2 + e % 2.
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/gemm/internal.h"

namespace hone {

// One of the two consumer warpgroups, as its epilogue sees it.
struct GemmPart {
  int thread;                // index among the 128 threads
  int barrier_id;            // named barrier of these 128 threads
  char* shared;              // this warpgroup's Epilogue::shared_bytes
  char* columns;             // this warpgroup's Epilogue::column_bytes
  hopper::Barrier* barrier;  // this warpgroup's mbarrier, one arrival per phase
  uint32_t round;            // number of tiles begun before this one
};

template <int Columns, int Stages, int Cluster>
struct GemmTile {
  static constexpr int rows = 128, columns = Columns, stages = Stages, cluster = Cluster, depth = 64;
  static constexpr int x_bytes = rows * depth * 2, w_bytes = columns * depth * 2, stage_bytes = x_bytes + w_bytes;
  static constexpr int threads = 384;
};

struct GemmShape {
  int m_units, n_tiles, k_stages;  // units: the row tiles of a cluster
  bool ahead;                      // w may be read before the kernel before has ended
  int group;                       // units per sweep over the columns; x and w of a sweep stay in L2
  // Row unit and column tile of the i-th work item.
  __device__ void place(int i, int& unit, int& column) const {
    const int sweep = i / (group * n_tiles), first = sweep * group, height = min(group, m_units - first),
              rest = i - first * n_tiles;
    column = rest / height;
    unit = first + rest % height;
  }
};

template <class Epilogue>
inline constexpr bool is_gated = requires(Epilogue epilogue) {
  epilogue.up_row;
};

template <class Tile, class Epilogue>
inline constexpr int gemm_shared_bytes = 1024 + Tile::stages* Tile::stage_bytes +
                                         2 * Epilogue::shared_bytes(Tile::columns) + 1024;

template <class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::threads, 1)
    gemm_sm90_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap w_map,
                     const __grid_constant__ Epilogue epilogue, GemmShape shape) {
  using namespace hopper;
  extern __shared__ char unaligned[];
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  char* stages = shared;
  char* parts = stages + Tile::stages * Tile::stage_bytes;
  char* columns = parts + 2 * Epilogue::shared_bytes(Tile::columns);
  Barrier* full = reinterpret_cast<Barrier*>(columns + 2 * Epilogue::column_bytes(Tile::columns));
  Barrier* empty = full + Tile::stages;
  Barrier* part_barriers = empty + Tile::stages;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), warpgroup = warp / 4;
  const int rank = Tile::cluster > 1 ? static_cast<int>(block_rank_in_cluster()) : 0;
  const int first = static_cast<int>(blockIdx.x) / Tile::cluster, step = static_cast<int>(gridDim.x) / Tile::cluster;
  const int work = shape.m_units * shape.n_tiles;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      full[s].init(1);
      empty[s].init(8 * Tile::cluster);
    }
    part_barriers[0].init(1);
    part_barriers[1].init(1);
    fence_mbarrier_init();
  }
  // The mbarriers of all blocks of the cluster are initialized.
  if constexpr (Tile::cluster > 1)
    cluster_sync();
  else
    __syncthreads();
  int stage = 0;
  uint32_t parity = 0;
  const auto next = [&] {
    if (++stage == Tile::stages) {
      stage = 0;
      parity ^= 1;
    }
  };

  // Producer.
  if (warpgroup == 2) {
    setmaxnreg_dec<40>();
    if (warp == 8 && threadIdx.x % 32 == 0) {
      griddep_launch_dependents();
      prefetch_tensor_map(x_map);
      prefetch_tensor_map(w_map);
      const auto load_w = [&](int k, int column) {
        char* to = stages + stage * Tile::stage_bytes + Tile::x_bytes;
        full[stage].arrive_expect_tx(Tile::stage_bytes);
        if constexpr (Tile::cluster > 1) {
          constexpr int share = Tile::columns / Tile::cluster;
          tma_load_multicast(to + rank * share * Tile::depth * 2, w_map, full[stage], k * Tile::depth,
                             column * Tile::columns + rank * share, (1 << Tile::cluster) - 1);
        } else if constexpr (is_gated<Epilogue>) {
          constexpr int half = Tile::columns / 2;
          tma_load(to, w_map, full[stage], k * Tile::depth, column * half);
          tma_load(to + half * Tile::depth * 2, w_map, full[stage], k * Tile::depth, epilogue.up_row + column * half);
        } else {
          tma_load(to, w_map, full[stage], k * Tile::depth, column * Tile::columns);
        }
      };
      const int ahead = shape.ahead && first < work ? min(Tile::stages, shape.k_stages) : 0;
      for (; stage < ahead; ++stage) {
        int unit, column;
        shape.place(first, unit, column);
        load_w(stage, column);
      }
      stage = 0;
      griddep_wait();  // x is written
      for (int i = first; i < work; i += step) {
        int unit, column;
        shape.place(i, unit, column);
        const int m = (unit * Tile::cluster + rank) * Tile::rows;
#pragma unroll 1
        for (int k = 0; k < shape.k_stages; ++k, next()) {
          if (i > first || k >= ahead) {
            empty[stage].wait(parity ^ 1);  // 8 consumer warps of each block have read the stage
            load_w(k, column);
          }
          tma_load(stages + stage * Tile::stage_bytes, x_map, full[stage], k * Tile::depth, m);
        }
      }
    }
  } else {
    // Consumers.
    setmaxnreg_inc<232>();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    GemmPart part{static_cast<int>(threadIdx.x) % 128,
                  warpgroup + 1,
                  parts + warpgroup * Epilogue::shared_bytes(Tile::columns),
                  columns + warpgroup * Epilogue::column_bytes(Tile::columns),
                  part_barriers + warpgroup,
                  0};
    griddep_wait();  // the residual is written; y may be overwritten
    const auto release = [&](int done) {
      if (Tile::cluster == 1 && lane == 0) empty[done].arrive();
      if (Tile::cluster > 1 && lane < Tile::cluster) empty[done].arrive_at(static_cast<uint32_t>(lane));
    };
    const auto multiply = [&](float(&sum)[Tile::columns / 2], bool add) {
      full[stage].wait(parity);  // x and w of the stage have landed
      const char* from = stages + stage * Tile::stage_bytes;
      const uint64_t a = smem_descriptor(from + warpgroup * (Tile::x_bytes / 2)),
                     b = smem_descriptor(from + Tile::x_bytes);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < Tile::depth / 16; ++s) wgmma_ss(sum, a + s * 2, b + s * 2, add || s > 0);
      wgmma_commit();
    };
    // One chunk: `count` stages into sum, from zero. A stage is released when the next one's wgmmas have been issued.
    // `overlapped` runs after the first three stages are issued.
    const auto chunk = [&](float(&sum)[Tile::columns / 2], int count, auto overlapped) {
      int previous = stage;
      multiply(sum, false);
      next();
      const auto more = [&](int from, int to) {
#pragma unroll 1
        for (int k = from; k < to; ++k) {
          multiply(sum, true);
          wgmma_wait<1>();  // the stage before has been read
          release(previous);
          previous = stage;
          next();
        }
      };
      more(1, min(3, count));
      overlapped();
      more(3, count);
      wgmma_wait<0>();  // the chunk's sums are complete
      wgmma_fence_registers(sum);
      release(previous);
    };
    constexpr int chunk_stages = gemm_cuda_chunk / Tile::depth;
    for (int i = first; i < work; i += step) {
      int unit, column;
      shape.place(i, unit, column);
      const int m = (unit * Tile::cluster + rank) * Tile::rows + warpgroup * 64, n = column * Tile::columns;
      float total[Tile::columns / 2], sum[Tile::columns / 2];
      chunk(total, min(chunk_stages, shape.k_stages), [&] { epilogue.template begin<Tile::columns>(part, m, n); });
      for (int k = chunk_stages; k < shape.k_stages; k += chunk_stages) {
        chunk(sum, min(chunk_stages, shape.k_stages - k), [] {});
#pragma unroll
        for (int e = 0; e < Tile::columns / 2; ++e) total[e] += sum[e];
      }
      epilogue.template finish<Tile::columns>(part, total, m, n);
      ++part.round;
    }
    epilogue.end(part);
  }
  if constexpr (Tile::cluster > 1) cluster_sync();  // the other block may still write to this one
}

// M, N, K > 0. x and w are tma_compatible().
template <class Tile, class Epilogue>
void launch_gemm_sm90(cudaStream_t stream, const Tensor& x, const Tensor& w, const Epilogue& epilogue, int group = 0) {
  const int64_t M = x.dim(0), N = w.dim(0), K = w.dim(1);
  const auto pieces = [](int64_t count, int64_t size) { return static_cast<int>((count + size - 1) / size); };
  if (group == 0) group = N > 4096 ? 16 : 16 / Tile::cluster;  // found by measurement
  const GemmShape shape{pieces(M, Tile::rows * Tile::cluster), pieces(N, Tile::columns), pieces(K, Tile::depth),
                        M <= 1024, group};
  constexpr int bytes = gemm_shared_bytes<Tile, Epilogue>,
                boxes = is_gated<Epilogue> ? 2 : Tile::cluster;  // TMA boxes of w per stage
  static_assert(!is_gated<Epilogue> || Tile::cluster == 1);
  const auto kernel = gemm_sm90_kernel<Tile, Epilogue>;
  allow_shared_memory(kernel, bytes);
  const int64_t work = int64_t{shape.m_units} * shape.n_tiles;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(work, num_sms() / Tile::cluster) * Tile::cluster));
  launch_pdl(stream, kernel, grid, Tile::threads, bytes, Tile::cluster, make_tensor_map(x, Tile::rows),
             make_tensor_map(w, Tile::columns / boxes), epilogue, shape);
}

}  // namespace hone
