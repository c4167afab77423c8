#pragma once
// Gradient of the experts' matrices on Hopper by TMA and wgmma: dw_e is written or added to, bf16 operands, f32 dw.
//
// Use       many rows per expert: training. Fewer rows run the portable bodies.
// Tile      128 rows by 128 or 192 columns of dw_e, K step 64 rows of the expert. Persistent: a thread block loops over
//           the tiles of all experts.
// Roles     384 threads. Warpgroups 0 and 1: consumers of 64 rows each. Warp 8: producer, lane 0 issues TMA. Warps 9 to
//           11 write the zeros of experts without rows.
// Pipeline  5 or 6 smem stages: dy 16 KB + x 16 or 24 KB; one full and one empty mbarrier each. If dw is written, a
//           consumer has two sets of sums: while it multiplies a tile, it writes an eighth of the last tile after each
//           of the first 8 K steps (all at once if the tile has no 8 steps). If dw is added to, a consumer has one set,
//           and loads a tile's old values after the first K step.
// Smem      1 KB alignment + stages * (16 KB + columns * 128 bytes) + 1 KB: at most 202 KB; 1 block per SM.
// Numerics  one f32 accumulator per element, rows ascending; then one addition to dw, or to 0 if it is written.
// PDL       waits at the start and triggers dependents there.
// Limits    sm_90a; rows of all operands 16-byte aligned; fewer than 2^31 rows and tiles.
//
// Both operands are MN-major: they lie in shared memory as slabs of 64 columns by 64 rows of the expert (8 KB).
#include <utility>

#include "kernels/moe/grouped_sm90.cuh"

namespace hone::grouped {

template <int Columns, int Stages, bool Accumulate>
struct WeightTile {
  static constexpr int rows = 128, columns = Columns, stages = Stages, threads = 384;
  static constexpr bool accumulate = Accumulate;
  static constexpr int dy_bytes = rows * depth * 2, x_bytes = columns * depth * 2, stage_bytes = dy_bytes + x_bytes;
  static constexpr int shared_bytes = 1024 + stages * stage_bytes + 1024;
  static constexpr int sums = columns / 2, groups = columns / 8;  // of a thread; groups of 8 columns
  static constexpr int chunks = 8;                                // in which a tile is written
};

struct WeightShape {
  const int32_t* offsets;
  int num_experts, height, width;  // of dw_e: N, K
  float* dw;
  int64_t matrix;  // elements from an expert's gradient to the next one's
};

// A tile of dw_e, and the rows of the expert.
struct WeightWork {
  int expert, m, column, first, count;
};

template <class Tile>
__device__ bool find_weight_work(const WeightShape& shape, int i, WeightWork& work) {
  const int across = (shape.width + Tile::columns - 1) / Tile::columns,
            down = (shape.height + Tile::rows - 1) / Tile::rows;
  work.expert = i / (down * across);
  if (work.expert >= shape.num_experts) return false;
  const int rest = i - work.expert * down * across;
  work.m = rest / across * Tile::rows;
  work.column = rest % across * Tile::columns;
  work.first = uniform(shape.offsets[work.expert]);
  work.count = uniform(shape.offsets[work.expert + 1]) - work.first;
  return true;
}

// Where a thread's sums of a tile go. Pair i of them: sums 2 i and 2 i + 1 to columns 8 (i / 2) and 8 (i / 2) + 1 after
// `at`, eight rows below if i is odd. Predicates instead of branches: ptxas would wait for the wgmmas in flight.
template <class Tile>
struct WeightPlace {
  float* at = nullptr;
  int64_t below = 0;
  int groups[2] = {0, 0};  // of 8 columns that are in dw, of each of the two rows

  WeightPlace() = default;
  __device__ WeightPlace(const WeightShape& shape, const WeightWork& work) : below(int64_t{8} * shape.width) {
    const int thread = static_cast<int>(threadIdx.x), row = work.m + thread / 32 * 16 + thread % 32 / 4,
              columns = min(Tile::columns, shape.width - work.column) / 8;
    at = shape.dw + work.expert * shape.matrix + int64_t{row} * shape.width + work.column + thread % 4 * 2;
    for (int h = 0; h < 2; ++h) groups[h] = row + 8 * h < shape.height ? columns : 0;
  }
  __device__ float* pair_at(int i) const { return at + i % 2 * below + i / 2 * 8; }
  __device__ int has_pair(int i) const { return i / 2 < groups[i % 2]; }
  __device__ void store(int i, float x, float y) const {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p st.global.cs.v2.f32 [%0], {%1, %2};\n}" ::"l"(pair_at(i)),
                 "f"(x), "f"(y), "r"(has_pair(i))
                 : "memory");
  }
  // Writes an eighth of the tile: 0 + the sums, so that no element is -0.
  template <int chunk>
  __device__ void write_chunk(const float (&sums)[Tile::sums]) const {
    constexpr int pairs = Tile::sums / 2 / Tile::chunks;
#pragma unroll
    for (int i = chunk * pairs; i < (chunk + 1) * pairs; ++i) store(i, 0 + sums[2 * i], 0 + sums[2 * i + 1]);
  }
  __device__ void load(float2 (&before)[Tile::sums / 2]) const {
#pragma unroll
    for (int i = 0; i < Tile::sums / 2; ++i) {
      before[i] = make_float2(0, 0);
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p ld.global.cs.v2.f32 {%0, %1}, [%2];\n}"
                   : "+f"(before[i].x), "+f"(before[i].y)
                   : "l"(pair_at(i)), "r"(has_pair(i))
                   : "memory");
    }
  }
  __device__ void add(const float (&sums)[Tile::sums], const float2 (&before)[Tile::sums / 2]) const {
#pragma unroll
    for (int i = 0; i < Tile::sums / 2; ++i) store(i, before[i].x + sums[2 * i], before[i].y + sums[2 * i + 1]);
  }
};

// Writes zeros to a tile of an expert without rows. 96 threads call it.
template <class Tile>
__device__ inline void write_zeros(const WeightShape& shape, const WeightWork& work, int thread) {
  const int width = min(Tile::columns, shape.width - work.column), rows = min(Tile::rows, shape.height - work.m);
  float* const at = shape.dw + work.expert * shape.matrix + int64_t{work.m} * shape.width + work.column;
  for (int i = thread; i < rows * width / 2; i += 96)
    *reinterpret_cast<float2*>(at + int64_t{i / (width / 2)} * shape.width + i % (width / 2) * 2) = make_float2(0, 0);
}

// Zeros the rows of a stage from `valid` on: they belong to the next expert. All 256 consumer threads call it.
template <class Tile>
__device__ inline void clear_tail(char* stage, int valid) {
  const int units = (depth - valid) * 8;  // of 16 bytes in a slab
  for (int i = static_cast<int>(threadIdx.x); i < units * (Tile::stage_bytes / slab_bytes); i += 256)
    *reinterpret_cast<uint4*>(stage + i / units * slab_bytes + valid * 128 + i % units * 16) = make_uint4(0, 0, 0, 0);
  hopper::fence_async_proxy();
  hopper::named_barrier_sync(3, 256);  // both warpgroups have cleared their part
}

// The stages in shared memory, and a consumer's or the producer's position in them.
template <class Tile>
struct WeightRing {
  char* stages;
  hopper::Barrier *full, *empty;
  RingPlace<Tile::stages> at;
  __device__ char* stage() const { return stages + at.stage * Tile::stage_bytes; }
};

// sums = dy^T . x of a tile. beside(std::integral_constant<int, c>()) for c below `beside_steps` runs while the wgmmas
// of the tile's first K steps do, or before them if there are too few.
template <int beside_steps, class Tile, class Beside>
__device__ void multiply_tile(WeightRing<Tile>& ring, const WeightWork& work, float (&sums)[Tile::sums],
                              Beside beside) {
  using namespace hopper;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, steps = (work.count + depth - 1) / depth;
  const bool releases = threadIdx.x % 32 == 0;
  const auto release = [&](int stage) {
    if (releases) ring.empty[stage].arrive();
  };
  int k = 0, previous = 0;
  // Queues the next K step. `whole`: all of its rows belong to the expert.
  const auto multiply = [&](bool whole) {
    ring.full[ring.at.stage].wait(ring.at.parity);  // dy and x of the stage have landed
    if (!whole && work.count - k * depth < depth) clear_tail<Tile>(ring.stage(), work.count - k * depth);
    const uint64_t dy = smem_descriptor(ring.stage() + warpgroup * (Tile::dy_bytes / 2), slab_bytes),
                   x = smem_descriptor(ring.stage() + Tile::dy_bytes, slab_bytes);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < depth / 16; ++s)
      wgmma_ss<true, true>(sums, further(dy, s * 16 * 128), further(x, s * 16 * 128), k > 0 || s > 0);
    wgmma_commit();
    ++k;
  };
  const auto finish_step_before = [&] {
    wgmma_wait<1>();  // the stage before has been read
    release(previous);
  };
  const auto next_stage = [&] {
    previous = ring.at.stage;
    ring.at.next();
  };
  // Calls body(c) for c = 0 .. beside_steps - 1.
  const auto each_step = [&](auto body) {
    [&]<int... c>(std::integer_sequence<int, c...>) { (body(std::integral_constant<int, c>()), ...); }
    (std::make_integer_sequence<int, beside_steps>());
  };
  if (steps > beside_steps) {
    each_step([&](auto c) {
      multiply(true);
      beside(c);
      if constexpr (c() > 0) finish_step_before();
      next_stage();
    });
  } else {
    each_step(beside);
    multiply(false);
    next_stage();
  }
#pragma unroll 1
  while (k < steps) {
    multiply(false);
    finish_step_before();
    next_stage();
  }
  wgmma_wait<0>();  // the sums are complete
  wgmma_fence_registers(sums);
  release(previous);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, 1)
    grouped_weight_sm90_kernel(const __grid_constant__ CUtensorMap dy_map, const __grid_constant__ CUtensorMap x_map,
                               const WeightShape shape) {
  using namespace hopper;
  extern __shared__ char unaligned[];
  WeightRing<Tile> ring{unaligned + (1024 - shared_address(unaligned) % 1024) % 1024, nullptr, nullptr, {}};
  ring.full = reinterpret_cast<Barrier*>(ring.stages + Tile::stages * Tile::stage_bytes);
  ring.empty = ring.full + Tile::stages;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ring.full[s].init(1);
      ring.empty[s].init(8);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // the mbarriers are initialized
  int next = static_cast<int>(blockIdx.x);
  const auto find = [&](WeightWork& work) {
    const bool found = find_weight_work<Tile>(shape, next, work);
    next += static_cast<int>(gridDim.x);
    return found;
  };

  // Producer, and warps that write zeros.
  if (warp >= 8) {
    setmaxnreg_dec<40>();
    if (warp != 8) {
      griddep_wait();  // the offsets are written; dw may be overwritten
      for (WeightWork work; !Tile::accumulate && find(work);)
        if (work.count == 0) write_zeros<Tile>(shape, work, static_cast<int>(threadIdx.x) - 9 * 32);
      return;
    }
    const bool issues = threadIdx.x % 32 == 0;
    if (issues) {
      griddep_launch_dependents();
      prefetch_tensor_map(dy_map);
      prefetch_tensor_map(x_map);
    }
    griddep_wait();  // offsets, dy and x are written
    for (WeightWork work; find(work);) {
#pragma unroll 1
      for (int k = 0; k * depth < work.count; ++k, ring.at.next()) {
        if (!issues) continue;
        Barrier& full = ring.full[ring.at.stage];
        ring.empty[ring.at.stage].wait(ring.at.parity ^ 1);  // 8 consumer warps have read the stage
        full.arrive_expect_tx(Tile::stage_bytes);
        const int row = work.first + k * depth;
        for (int c = 0; c < Tile::rows; c += 64)
          tma_load(ring.stage() + c / 64 * slab_bytes, dy_map, full, work.m + c, row);
        for (int c = 0; c < Tile::columns; c += 64)
          tma_load(ring.stage() + Tile::dy_bytes + c / 64 * slab_bytes, x_map, full, work.column + c, row);
      }
      __syncwarp();
    }
    return;
  }

  // Consumers.
  setmaxnreg_inc<232>();
  griddep_wait();  // the offsets are written; dw may be overwritten
  const auto find_rows = [&](WeightWork& work) {
    while (find(work))
      if (work.count > 0) return true;
    return false;
  };
  float sums[Tile::sums];
  if constexpr (Tile::accumulate) {
    for (WeightWork work; find_rows(work);) {
      const WeightPlace<Tile> place(shape, work);
      float2 before[Tile::sums / 2];
      multiply_tile<1>(ring, work, sums, [&](auto) { place.load(before); });
      place.add(sums, before);
    }
  } else {
    float others[Tile::sums];
    WeightPlace<Tile> place;  // of the last tile; at first of nothing
    const auto write = [&](const float(&of)[Tile::sums]) {
      return [&](auto chunk) { place.template write_chunk<chunk()>(of); };
    };
    const auto write_all = [&](const float(&of)[Tile::sums]) {
      [&]<int... c>(std::integer_sequence<int, c...>) { (place.template write_chunk<c>(of), ...); }
      (std::make_integer_sequence<int, Tile::chunks>());
    };
    for (WeightWork work;;) {
      if (!find_rows(work)) return write_all(others);
      multiply_tile<Tile::chunks>(ring, work, sums, write(others));
      place = WeightPlace<Tile>(shape, work);
      if (!find_rows(work)) return write_all(sums);
      multiply_tile<Tile::chunks>(ring, work, others, write(sums));
      place = WeightPlace<Tile>(shape, work);
    }
  }
}

}  // namespace hone::grouped
