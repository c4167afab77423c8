#pragma once
// Grouped GEMM on Hopper by TMA and wgmma: forward and the gradient of the input, bf16 operands. The gradient of the
// matrices is in grouped_weight_sm90.cuh. Only .cu files include it.
//
// Use       many rows per expert: training and prefill. Fewer rows run the portable bodies.
// Tile      128 rows by 128 or 192 columns of the output, K step 64. Persistent: a thread block loops over the tiles of
//           all experts. It finds them from the offsets on the device (group_tiles.cuh).
// Roles     384 threads. Warpgroups 0 and 1: consumers of 64 rows each. Warp 8: producer, lane 0 issues TMA.
// Pipeline  4 or 5 smem stages: a 16 KB + b 16 or 24 KB; one full and one empty mbarrier each.
// Smem      1 KB alignment + stages * (16 KB + columns * 128 bytes) + boxes for the bf16 output of both warpgroups, 64
//           rows each + 1 KB: at most 210 KB; 1 block per SM.
// Numerics  forward: K chunks of gemm_cuda_chunk, each one f32 accumulator from zero, added in ascending order: the
//           bits of the dense GEMM. Gradient of the input: one f32 accumulator.
// PDL       waits at the start and triggers dependents there.
// Limits    sm_90a; rows of all operands 16-byte aligned; fewer than 2^31 rows and tiles.
//
//   product  output row by column   a                              b
//   forward  y [P, N]               x [P, K], K-major              w_e [N, K], K-major
//   input    dx [P, K]              dy [P, N], K-major             w_e [N, K], MN-major
//
// An MN-major operand lies in shared memory as slabs of 64 columns by 64 steps of the reduction (8 KB).
#include <climits>

#include "kernels/gemm/sm90/store.cuh"
#include "kernels/moe/group_tiles.cuh"

namespace hone::grouped {

enum class Product : uint8_t { forward, input };

constexpr int depth = 64, slab_bytes = 64 * 64 * 2;

template <Product which, int Columns, int Stages>
struct Tile {
  static constexpr Product product = which;
  static constexpr int rows = 128, columns = Columns, stages = Stages, threads = 384;
  static constexpr int a_bytes = rows * depth * 2, b_bytes = columns * depth * 2, stage_bytes = a_bytes + b_bytes;
  static constexpr int box_bytes = 64 * columns * 2;  // of a warpgroup
  static constexpr int shared_bytes = 1024 + stages * stage_bytes + 2 * box_bytes + 1024;
};

struct Shape {
  const int32_t* offsets;
  int num_experts, rows;  // P
  int width;              // columns of the output
  int reduction;          // K or N
};

// One tile of the output.
struct Work {
  int expert;    // num_experts: rows without an expert
  int m, m_end;  // first row; end of the rows that are written
  int column;
};

// The i-th tile. All lanes of a warp call it, with rising i. False: there are no more.
template <class Tile>
__device__ bool find_work(const Shape& shape, int i, Work& work, GroupCursor& cursor) {
  const int across = (shape.width + Tile::columns - 1) / Tile::columns;
  const GroupTile tile = find_group_tile(shape.offsets, shape.num_experts, shape.rows, Tile::rows, i / across, cursor);
  work = {tile.expert, tile.row, tile.end, i % across * Tile::columns};
  return tile.expert >= 0;
}

// Writes the tile in bf16: by TMA if all of the warpgroup's rows belong to the expert, else row by row.
struct StoreRows {
  GemmStoreBox box;
  __nv_bfloat16* y;
  int64_t stride;

  template <int Columns>
  __device__ void begin(const GemmPart& part, const Work& work, int m) const {
    box.begin<Columns>(part, m, work.column);
  }
  template <int Columns>
  __device__ void finish(const GemmPart& part, float (&total)[Columns / 2], const Work& work, int m) const {
    box.place<Columns>(part, total);
    if (m + 64 <= work.m_end) return box.store<Columns>(part, m, work.column);
    for (int i = part.thread; i < 64 * Columns / 8; i += 128) {
      const int r = i / (Columns / 8), unit = i % (Columns / 8), n = work.column + unit * 8;
      if (m + r < work.m_end && n < box.N)
        *reinterpret_cast<uint4*>(y + (m + r) * stride + n) = *reinterpret_cast<const uint4*>(
            part.shared + unit / 8 * slab_bytes + r * 128 + ((unit % 8 ^ (r & 7)) << 4));
    }
    hopper::named_barrier_sync(part.barrier_id, 128);  // all have read; TMA may overwrite shared memory
  }
  // Rows without an expert.
  template <int Columns>
  __device__ void zero(const GemmPart& part, const Work& work, int m) const {
    if (box.has_residual) return;
    for (int i = part.thread; i < 64 * Columns / 8; i += 128) {
      const int r = i / (Columns / 8), n = work.column + i % (Columns / 8) * 8;
      if (m + r < work.m_end && n < box.N) *reinterpret_cast<uint4*>(y + (m + r) * stride + n) = make_uint4(0, 0, 0, 0);
    }
  }
  __device__ void end(const GemmPart& part) const { box.end(part); }
};

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, 1)
    grouped_sm90_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                        const __grid_constant__ StoreRows epilogue, Shape shape) {
  using namespace hopper;
  constexpr Product product = Tile::product;
  constexpr bool b_mn_major = product == Product::input;
  extern __shared__ char unaligned[];
  char* stages = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  char* boxes = stages + Tile::stages * Tile::stage_bytes;
  Barrier* full = reinterpret_cast<Barrier*>(boxes + 2 * Tile::box_bytes);
  Barrier* empty = full + Tile::stages;
  Barrier* part_barriers = empty + Tile::stages;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), warpgroup = warp / 4,
            lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      full[s].init(1);
      empty[s].init(8);
    }
    part_barriers[0].init(1);
    part_barriers[1].init(1);
    fence_mbarrier_init();
  }
  __syncthreads();  // the mbarriers are initialized
  int stage = 0;
  uint32_t parity = 0;
  const auto next = [&] {
    if (++stage == Tile::stages) {
      stage = 0;
      parity ^= 1;
    }
  };
  const auto steps_of = [&](const Work& work) {
    return work.expert == shape.num_experts ? 0 : (shape.reduction + depth - 1) / depth;
  };

  // Producer.
  if (warpgroup == 2) {
    setmaxnreg_dec<40>();
    if (warp != 8) return;
    if (lane == 0) {
      griddep_launch_dependents();
      prefetch_tensor_map(a_map);
      prefetch_tensor_map(b_map);
    }
    griddep_wait();  // offsets, a and b are written
    GroupCursor cursor;
    Work work;
    for (int i = static_cast<int>(blockIdx.x); find_work<Tile>(shape, i, work, cursor);
         i += static_cast<int>(gridDim.x)) {
      const int steps = steps_of(work);
#pragma unroll 1
      for (int k = 0; k < steps; ++k, next()) {
        if (lane != 0) continue;
        empty[stage].wait(parity ^ 1);  // 8 consumer warps have read the stage
        full[stage].arrive_expect_tx(Tile::stage_bytes);
        char *a = stages + stage * Tile::stage_bytes, *b = a + Tile::a_bytes;
        const int at = k * depth;
        tma_load(a, a_map, full[stage], at, work.m);
        if constexpr (product == Product::forward)
          tma_load(b, b_map, full[stage], at, work.expert, work.column);
        else
          for (int c = 0; c < Tile::columns; c += 64)
            tma_load(b + c / 64 * slab_bytes, b_map, full[stage], work.column + c, work.expert, at);
      }
      __syncwarp();
    }
    return;
  }

  // Consumers.
  setmaxnreg_inc<232>();
  GemmPart part{static_cast<int>(threadIdx.x) % 128, warpgroup + 1,
                boxes + warpgroup * Tile::box_bytes, nullptr,
                part_barriers + warpgroup,           0};
  griddep_wait();  // the offsets are written; the output may be overwritten
  const auto release = [&](int done) {
    if (lane == 0) empty[done].arrive();
  };
  const auto multiply = [&](float(&sum)[Tile::columns / 2], bool add) {
    full[stage].wait(parity);  // a and b of the stage have landed
    char* from = stages + stage * Tile::stage_bytes;
    const uint64_t a = smem_descriptor(from + warpgroup * (Tile::a_bytes / 2)),
                   b = smem_descriptor(from + Tile::a_bytes, b_mn_major ? slab_bytes : 16);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < depth / 16; ++s)
      wgmma_ss<false, b_mn_major>(sum, further(a, s * 32), further(b, s * (b_mn_major ? 16 * 128 : 32)), add || s > 0);
    wgmma_commit();
  };
  GroupCursor cursor;
  int i = static_cast<int>(blockIdx.x);
  Work work, next_work;
  bool more = find_work<Tile>(shape, i, work, cursor);
  for (; more; work = next_work) {
    const int steps = steps_of(work), m = work.m + warpgroup * 64;
    const auto find_next = [&] { more = find_work<Tile>(shape, i += static_cast<int>(gridDim.x), next_work, cursor); };
    if (steps == 0) {
      epilogue.template zero<Tile::columns>(part, work, m);
      find_next();
      continue;
    }
    // Steps [from, to) into sum, from zero. A stage is released when the next one's wgmmas have been issued. `early`
    // runs after the first step is issued.
    const auto chunk = [&](float(&sum)[Tile::columns / 2], int from, int to, auto early) {
      int previous = stage;
      multiply(sum, false);
      next();
      early();
#pragma unroll 1
      for (int k = from + 1; k < to; ++k) {
        multiply(sum, true);
        wgmma_wait<1>();  // the stage before has been read
        release(previous);
        previous = stage;
        next();
      }
      wgmma_wait<0>();  // the chunk's sums are complete
      wgmma_fence_registers(sum);
      release(previous);
    };
    constexpr int chunk_steps = product == Product::forward ? static_cast<int>(gemm_cuda_chunk) / depth : INT_MAX;
    float total[Tile::columns / 2];
    chunk(total, 0, min(chunk_steps, steps), [&] {
      epilogue.template begin<Tile::columns>(part, work, m);
      find_next();
    });
    if constexpr (product == Product::forward)
      for (int k = chunk_steps; k < steps; k += chunk_steps) {
        float sum[Tile::columns / 2];
        chunk(sum, k, min(k + chunk_steps, steps), [] {});
#pragma unroll
        for (int e = 0; e < Tile::columns / 2; ++e) total[e] += sum[e];
      }
    epilogue.template finish<Tile::columns>(part, total, work, m);
    ++part.round;
  }
  epilogue.end(part);
}

}  // namespace hone::grouped
