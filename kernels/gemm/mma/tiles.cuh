#pragma once
// GEMM for compute capability 8.0 and later: y = x . w^T by cp.async, ldmatrix and mma.sync, bf16 operands. Only .cu
// and .cuh files include it.
//
// Use       gemm_forward on devices without a Hopper kernel, more than 8 rows (dispatch.cu chooses the tile).
// Tile      MmaTile: 16 to 128 rows of x by 64 to 192 rows of w, K step 64 or 32. With splits > 1 a block computes
//           some K chunks of a tile, and a join kernel adds them (split_k_join.cuh).
// Roles     4 or 8 warps, all alike. A warp computes warp_rows x warp_columns of the tile and copies its share of x
//           and w.
// Pipeline  3 to 6 smem stages (cp.async groups), one __syncthreads() per stage. Operand registers: one set for x, each
//           reloaded right after its last use, and two for w; two of each would not fit beside sums and totals. Copies
//           and loads are spread over the mma instructions.
// Smem      stages * (rows + columns) * K step * 2 bytes: MmaTile::shared_bytes, 30 to 160 KB. A 16-byte unit u of
//           row r lies at u ^ stage_swizzle(r). The epilogue reuses it for a transpose of 16 rows per warp.
// Numerics  K chunks of gemm_cuda_chunk, each from zero, added in ascending order: bits equal the "tiles" body and
//           sm90/wgmma.cuh (tests/gpu/gemm_test).
// PDL       triggers dependents at the start; with few rows prefetches w into the stages before griddep_wait().
// Limits    rows of x and w 16-byte aligned; M, N, K > 0.
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gemm.h"

namespace hone {

// Blocks: thread blocks per SM for which registers are reserved.
template <int Rows, int Columns, int WarpRows, int WarpColumns, int Depth, int Stages, int Blocks>
struct MmaTile {
  static constexpr int rows = Rows, columns = Columns, warp_rows = WarpRows, warp_columns = WarpColumns, depth = Depth,
                       stages = Stages, blocks = Blocks;
  static constexpr int warps = Rows / WarpRows * (Columns / WarpColumns), threads = 32 * warps;
  static constexpr int chunk_stages = static_cast<int>(gemm_cuda_chunk) / Depth;
  static constexpr int pitch = Depth * 2;  // bytes per row of a stage
  static constexpr int x_bytes = Rows * pitch, stage_bytes = x_bytes + Columns * pitch;
  static constexpr int shared_bytes = Stages * stage_bytes;
  static constexpr int slab_pitch = WarpColumns + 8;  // floats per row of the epilogue's transpose; no bank conflicts
  static_assert(Rows % WarpRows == 0 && Columns % WarpColumns == 0 && WarpRows % 16 == 0 && WarpColumns % 16 == 0);
  static_assert((Depth == 64 || Depth == 32) && Stages >= 3);
  static_assert(warps * 16 * slab_pitch * 4 <= shared_bytes);
};

struct MmaShape {
  int M, N, K;
  int m_tiles, n_tiles;
  int group;      // row tiles per sweep over the columns; x and w of a sweep stay in L2
  int splits;     // thread blocks that share a tile's chunks
  int per_split;  // chunks of each but the last of them
  bool ahead;     // w is read before the kernel before has ended
  bool packed;    // y, bias and residual are read and written in vectors of 8 elements
  // Row and column tile of work item i.
  __device__ void place(int i, int& row, int& column) const {
    const int sweep = i / (group * n_tiles), first = sweep * group, height = min(group, m_tiles - first),
              rest = i - first * n_tiles;
    column = rest / height;
    row = first + rest % height;
  }
};

// The swizzle of a stage's rows: eight rows of one unit, as ldmatrix reads them, touch each bank once.
template <int Depth>
__device__ constexpr int stage_swizzle(int row) {
  return Depth == 64 ? row & 7 : row >> 1 & 3;
}

// A thread's copies of `Rows` rows of a matrix to a stage. Elements outside the matrix are zero.
template <int Rows, int Depth, int Threads>
struct StageCopy {
  static constexpr int units = Depth / 8, step = Threads / units;  // 16-byte units per row; rows per pass
  static constexpr int passes = (Rows + step - 1) / step;
  static_assert(step % 8 == 0);
  const char* from;
  int64_t step_bytes;
  uint32_t to;
  int rows_left, column;

  __device__ StageCopy(const __nv_bfloat16* matrix, int64_t stride, int first_row, int rows, uint32_t stage)
      : step_bytes(stride * step * 2), column(static_cast<int>(threadIdx.x) % units * 8) {
    const int r = static_cast<int>(threadIdx.x) / units;
    from = reinterpret_cast<const char*>(matrix + (int64_t{first_row} + r) * stride + column);
    to = stage + static_cast<uint32_t>(r * Depth * 2 + ((column / 8 ^ stage_swizzle<Depth>(r)) << 4));
    rows_left = rows - first_row - r;
  }
  // Bytes of this thread's unit in columns [k, k + Depth) of K: the rest is zero and is not read.
  __device__ int unit_bytes(int k, int K) const { return min(16, max(0, (K - k - column) * 2)); }
  // Copies the unit of pass i of columns [k, k + Depth) to the stage at `offset`.
  __device__ void run_pass(int i, int k, int bytes, uint32_t offset) const {
    if (Rows % step == 0 || i * step + static_cast<int>(threadIdx.x) / units < Rows)
      cp_async_bytes(to + offset + static_cast<uint32_t>(i * step * Depth * 2), from + int64_t{k} * 2 + i * step_bytes,
                     i * step < rows_left ? bytes : 0);
  }
  __device__ void run(int k, int K, uint32_t offset) const {
    const int bytes = unit_bytes(k, K);
#pragma unroll
    for (int i = 0; i < passes; ++i) run_pass(i, k, bytes, offset);
  }
};

// A warp's part of the tile: its operand registers and the addresses from which it loads them.
template <class Tile>
struct MmaWarp {
  static constexpr int row_tiles = Tile::warp_rows / 16, column_tiles = Tile::warp_columns / 8,
                       products = row_tiles * column_tiles;  // mma instructions per step
  using Sums = float[row_tiles][column_tiles][4];
  uint32_t a[row_tiles][4], b[2][column_tiles][2];  // b: of this mma step and of the next
  uint32_t x_at, w_at;                              // of this lane, in stage 0, mma step 0

  __device__ MmaWarp(uint32_t ring, int row, int column, int lane) {
    const int x_row = row + lane % 16, w_row = column + lane % 8 + lane / 16 * 8;
    x_at = ring + static_cast<uint32_t>(x_row * Tile::pitch + ((lane / 16 ^ stage_swizzle<Tile::depth>(x_row)) << 4));
    w_at = ring + Tile::x_bytes +
           static_cast<uint32_t>(w_row * Tile::pitch + ((lane / 8 % 2 ^ stage_swizzle<Tile::depth>(w_row)) << 4));
  }
  // The address in another stage and mma step. Stages begin at multiples of 128 bytes, so a flipped bit of the unit is
  // a flipped bit of the address.
  static __device__ uint32_t at_step(uint32_t at, uint32_t offset, int step) {
    return (at + offset) ^ static_cast<uint32_t>(step * 32);
  }
  __device__ void load_a(int i, uint32_t at) {
    mma::ldmatrix_x4(at + static_cast<uint32_t>(i * 16 * Tile::pitch), a[i][0], a[i][1], a[i][2], a[i][3]);
  }
  __device__ void load_b(int set, int j, uint32_t at) {
    mma::ldmatrix_x4(at + static_cast<uint32_t>(j * 8 * Tile::pitch), b[set][j][0], b[set][j][1], b[set][j + 1][0],
                     b[set][j + 1][1]);
  }
  __device__ void load() {
#pragma unroll
    for (int j = 0; j < column_tiles; j += 2) load_b(0, j, w_at);
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) load_a(i, x_at);
  }
  // sum += a . b of this mma step; then the registers hold the step at x_next and w_next. Calls copy(i) after the i-th
  // mma instruction of a stage. Loads and copies are spread over the mma instructions: warps run in step, and a burst
  // of loads from all of them would stall all.
  template <class Copy>
  __device__ void multiply(Sums& sum, int step, uint32_t x_next, uint32_t w_next, Copy copy) {
    const int set = step % 2;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) {
        mma::mma_bf16(sum[i][j], a[i], b[set][j]);
        const int done = i * column_tiles + j;
#pragma unroll
        for (int l = 0; l < column_tiles; l += 2)
          if (done == (l + 1) * products / (column_tiles + 2)) load_b(set ^ 1, l, w_next);
        copy(step * products + done);
      }
      load_a(i, x_next);
    }
  }
};

// Stores a thread's sums of rows m, m + 8, ... and columns n, n + 1, n + 8, ... to a slot of the partial sums.
template <class Warp>
__device__ void store_partial(float* slot, const typename Warp::Sums& from, int m, int n, int M, int N) {
#pragma unroll
  for (int r = 0; r < 2 * Warp::row_tiles; ++r) {
    if (m + r * 8 >= M) continue;
    float* const to = slot + int64_t{m + r * 8} * N + n;
#pragma unroll
    for (int j = 0; j < Warp::column_tiles; ++j) {
      const float first = from[r / 2][j][r % 2 * 2], second = from[r / 2][j][r % 2 * 2 + 1];
      if (N % 2 == 0) {
        if (n + 8 * j < N) *reinterpret_cast<float2*>(to + 8 * j) = make_float2(first, second);
      } else {
        if (n + 8 * j < N) to[8 * j] = first;
        if (n + 8 * j + 1 < N) to[8 * j + 1] = second;
      }
    }
  }
}

// Writes 8 columns of y. bias and residual are bf16 or missing; `residual` holds the latter's elements.
__device__ inline void store_eight(const GemmEpilogue& to, float (&x)[8], const uint4& residual, int64_t m, int n) {
  const auto add = [&](const uint4& from) {
    const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] += __uint_as_float(words[i] << 16);
      x[2 * i + 1] += __uint_as_float(words[i] & 0xffff0000u);
    }
  };
  if (to.bias) add(*reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(to.bias) + n));
  if (to.residual) add(residual);
  if (to.y_bf16) {
    store_vec(static_cast<__nv_bfloat16*>(to.y) + m * to.y_stride + n, x);
  } else {
    float* const y = static_cast<float*>(to.y) + m * to.y_stride + n;
    store_vec(y, {x[0], x[1], x[2], x[3]});
    store_vec(y + 4, {x[4], x[5], x[6], x[7]});
  }
}

// Writes a warp's part of y, whose first element is (m, n). Transposes 16 rows at a time in `slab`, so that a lane
// writes 8 columns of a row.
template <class Tile>
__device__ void store_warp(const GemmEpilogue& to, const MmaShape& shape, float* slab,
                           const typename MmaWarp<Tile>::Sums& total, int m, int n) {
  constexpr int packs = Tile::warp_columns / 8, rounds = packs / 2;  // packs per row; packs per lane in 16 rows
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < MmaWarp<Tile>::row_tiles; ++i) {
    const auto row_of = [&](int round) { return (lane + round * 32) / packs; };
    const auto column_of = [&](int round) { return (lane + round * 32) % packs * 8; };
    uint4 residual[rounds] = {};
    if (shape.packed && to.residual)
#pragma unroll
      for (int round = 0; round < rounds; ++round)
        if (m + i * 16 + row_of(round) < shape.M && n + column_of(round) < shape.N)
          residual[round] = *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(to.residual) +
                                                            int64_t{m + i * 16 + row_of(round)} * to.residual_stride +
                                                            n + column_of(round));
#pragma unroll
    for (int j = 0; j < MmaWarp<Tile>::column_tiles; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<float2*>(slab + (g + 8 * h) * Tile::slab_pitch + j * 8 + 2 * t) =
            make_float2(total[i][j][2 * h], total[i][j][2 * h + 1]);
    __syncwarp();  // the slab is written
    if (shape.packed) {
#pragma unroll
      for (int round = 0; round < rounds; ++round) {
        const int r = row_of(round), c = column_of(round);
        float eight[8];
        load_vec(reinterpret_cast<float(&)[4]>(eight[0]), slab + r * Tile::slab_pitch + c);
        load_vec(reinterpret_cast<float(&)[4]>(eight[4]), slab + r * Tile::slab_pitch + c + 4);
        if (m + i * 16 + r < shape.M && n + c < shape.N) store_eight(to, eight, residual[round], m + i * 16 + r, n + c);
      }
    } else {
#pragma unroll 1
      for (int e = lane; e < 16 * Tile::warp_columns; e += 32) {
        const int r = e / Tile::warp_columns, c = e % Tile::warp_columns;
        if (m + i * 16 + r < shape.M && n + c < shape.N)
          to.store(slab[r * Tile::slab_pitch + c], m + i * 16 + r, n + c);
      }
    }
    __syncwarp();  // all lanes have read the slab
  }
}

// Computes the tile of a thread block whose first element is (row, column); rows from shape.M on are not read. partial:
// with Split, the partial sums of split_k_join.cuh.
template <class Tile, bool Split>
__device__ __forceinline__ void mma_tile(const __nv_bfloat16* x, const __nv_bfloat16* w, int64_t x_stride,
                                         int64_t w_stride, const GemmEpilogue& epilogue, float* partial,
                                         const MmaShape& shape, int row, int column, int split) {
  using Warp = MmaWarp<Tile>;
  constexpr int steps = Tile::depth / 16, chunk = static_cast<int>(gemm_cuda_chunk);
  static_assert(steps % 2 == 0, "the first mma step of a stage reads operand set 0");
  extern __shared__ __align__(128) char shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int warps_down = Tile::rows / Tile::warp_rows;
  const int warp_row = warp % warps_down * Tile::warp_rows, warp_column = warp / warps_down * Tile::warp_columns;
  const int first = split * shape.per_split * chunk,
            end = Split ? min(shape.K, first + shape.per_split * chunk) : shape.K,
            stages = (end - first + Tile::depth - 1) / Tile::depth;
  const uint32_t ring = mma::shared_address(shared);
  using CopyX = StageCopy<Tile::rows, Tile::depth, Tile::threads>;
  using CopyW = StageCopy<Tile::columns, Tile::depth, Tile::threads>;
  const CopyX copy_x(x, x_stride, row, shape.M, ring);
  const CopyW copy_w(w, w_stride, column, shape.N, ring + Tile::x_bytes);

  // Prologue: the first stages. w is constant during a pass, so it may be read before the kernel before has ended.
  hopper::griddep_launch_dependents();
  if (!shape.ahead) hopper::griddep_wait();  // x is written
#pragma unroll
  for (int s = 0; s < Tile::stages - 1; ++s)
    copy_w.run(first + s * Tile::depth, end, static_cast<uint32_t>(s * Tile::stage_bytes));
  if (shape.ahead) hopper::griddep_wait();  // x is written
#pragma unroll
  for (int s = 0; s < Tile::stages - 1; ++s) {
    copy_x.run(first + s * Tile::depth, end, static_cast<uint32_t>(s * Tile::stage_bytes));
    cp_async_commit();
  }
  Warp part(ring, warp_row, warp_column, lane);
  cp_async_wait<Tile::stages - 2>();
  __syncthreads();  // the first stage's copies of all threads have landed
  part.load();

  // Main loop over chunks and stages. `read` and `write`: offsets of the stage in use and of the one that is free.
  uint32_t read = 0, write = (Tile::stages - 1) * Tile::stage_bytes;
  const auto next = [](uint32_t offset) {
    return offset == (Tile::stages - 1) * Tile::stage_bytes ? 0 : offset + Tile::stage_bytes;
  };
  const int m = row + warp_row, n = column + warp_column;
  int slot = split == 0 ? 0 : split * shape.per_split - shape.per_split + 1;
  const auto keep = [&](const typename Warp::Sums& from) {
    store_partial<Warp>(partial + int64_t{slot++} * shape.M * shape.N, from, m + lane / 4, n + lane % 4 * 2, shape.M,
                        shape.N);
  };
  typename Warp::Sums total;
#pragma unroll 1
  for (int begin = 0; begin < stages; begin += Tile::chunk_stages) {
    typename Warp::Sums sum = {};
    const int chunk_end = min(stages, begin + Tile::chunk_stages);
#pragma unroll 1
    for (int s = begin; s < chunk_end; ++s) {
      // The stage that is copied. Past the end the copies write zeros that nobody reads.
      const int k = first + (s + Tile::stages - 1) * Tile::depth, x_unit = copy_x.unit_bytes(k, end),
                w_unit = copy_w.unit_bytes(k, end);
      const auto copy = [&](int i) {
        constexpr int passes = CopyX::passes + CopyW::passes, gap = (steps - 1) * Warp::products / passes;
        static_assert(gap > 0);
        const int pass = i / gap;
        if (i % gap != gap / 2 || pass >= passes) return;
        if (pass < CopyX::passes)
          copy_x.run_pass(pass, k, x_unit, write);
        else
          copy_w.run_pass(pass - CopyX::passes, k, w_unit, write);
      };
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        if (step == steps - 1) {
          cp_async_commit();
          write = next(write);
          cp_async_wait<Tile::stages - 2>();
          __syncthreads();  // all copies of the next stage have landed; all warps have read this one
          read = next(read);
        }
        const int following = (step + 1) % steps;
        part.multiply(sum, step, Warp::at_step(part.x_at, read, following), Warp::at_step(part.w_at, read, following),
                      copy);
      }
    }
    // End of a chunk.
    if (Split && split > 0) {
      keep(sum);
      continue;
    }
#pragma unroll
    for (int i = 0; i < Warp::row_tiles; ++i)
#pragma unroll
      for (int j = 0; j < Warp::column_tiles; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) total[i][j][e] = begin == 0 ? sum[i][j][e] : total[i][j][e] + sum[i][j][e];
  }

  // Epilogue.
  if (Split) {
    if (split == 0) keep(total);
    return;
  }
  cp_async_wait<0>();
  __syncthreads();  // all warps have read the stages
  store_warp<Tile>(epilogue, shape, reinterpret_cast<float*>(shared) + warp * 16 * Tile::slab_pitch, total, m, n);
}

template <class Tile, bool Split>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    mma_tiles_kernel(const __nv_bfloat16* x, const __nv_bfloat16* w, int64_t x_stride, int64_t w_stride,
                     GemmEpilogue epilogue, float* partial, MmaShape shape) {
  const int item = static_cast<int>(blockIdx.x), split = Split ? item % shape.splits : 0;
  int row, column;
  shape.place(Split ? item / shape.splits : item, row, column);
  mma_tile<Tile, Split>(x, w, x_stride, w_stride, epilogue, partial, shape, row * Tile::rows, column * Tile::columns,
                        split);
}

}  // namespace hone
