#pragma once
// Gradients of vectors that all rows share (norm weight, bias). Thread blocks sum fixed ranges of rows in registers
// (add_groups()); the kernel here adds the ranges.
//
// Use       backward of layernorm and rmsnorm.
// Tile      32 columns by all partial rows per block; grid: column tiles x up to two vectors.
// Roles     1024 threads: 32 columns by 32 lanes; a lane adds a contiguous range of the partial rows.
// Pipeline  none; loop unrolled by 8.
// Smem      static, 4 KB.
// Numerics  f32. A lane adds its rows in ascending order; lanes are added in ascending order. The shapes fix all
//           ranges.
// PDL       launched with PDL; griddep_wait before the partial sums are read. The kernel before triggers in
//           add_groups().
// Limits    none.
#include "kernels/cuda/pdl.cuh"
#include "kernels/norm/row_tile.cuh"

namespace hone {

// How the rows of a backward pass are split: `count` thread blocks that process `groups` rows at a time. At most 132
// blocks, one per SM of an H100 or H200. Both numbers are the same on every GPU because they decide the order of sums.
struct RowBlocks {
  static constexpr int most = 132, most_warps = 16;
  int groups, threads, rows_a_block, count;
  RowBlocks(int64_t rows, RowShape shape)
      : groups(std::max(1, (shape.packs > 4 ? 12 : most_warps) / shape.warps)), threads(32 * shape.warps * groups) {
    rows_a_block = static_cast<int>((rows + most - 1) / most);
    count = static_cast<int>((rows + rows_a_block - 1) / rows_a_block);
  }
};

// The ring of a backward pass in shared memory: `inputs` rows of each group in each of one or two pipeline stages.
struct NormRing {
  int stages;
  size_t bytes;
  // static_bytes: static shared memory of the kernel.
  NormRing(const DeviceLimits& limits, int inputs, int packs, int threads, size_t static_bytes) {
    const auto stage_bytes = static_cast<size_t>(inputs * packs * threads) * sizeof(uint4);
    stages = 2 * stage_bytes + static_bytes <= limits.shared_per_block ? 2 : 1;
    bytes = static_cast<size_t>(stages) * stage_bytes;
  }
};
// Visits the shapes of all backward kernels: body(packs, threads).
template <class Body>
void for_norm_shapes(int most_packs, int most_warps, Body body) {
  for (int packs = 2; packs <= most_packs; packs += packs < 4 ? 1 : 2)
    for (int warps = packs > 4 ? most_warps : 1; warps <= most_warps; warps *= 2)
      body(packs, RowBlocks(1, {packs, warps}).threads);
}

// Writes to [dim] the sums of the block's groups in ascending order. `shared` holds dim floats per group. All threads
// of the block call it.
template <class T, int P, bool whole>
__device__ inline void add_groups(float* to, float* shared, const float (&sums)[P][vec_size<T>], int dim,
                                  RowThread at) {
  constexpr int N = vec_size<T>;
  hopper::griddep_launch_dependents();
  __syncthreads();  // all threads have read what `shared` held before
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const int i = RowTile<T, P>::column(p, at);
    if constexpr (whole) {
      if (i < dim)
#pragma unroll
        for (int j = 0; j < N; j += 4)
          *reinterpret_cast<float4*>(shared + at.row * dim + i + j) =
              make_float4(sums[p][j], sums[p][j + 1], sums[p][j + 2], sums[p][j + 3]);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (i + j < dim) shared[at.row * dim + i + j] = sums[p][j];
    }
  }
  __syncthreads();  // the sums of all groups are in shared memory
  const int groups = static_cast<int>(blockDim.x) / at.threads;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int group = 0; group < groups; ++group) sum += shared[group * dim + i];
    to[i] = sum;
  }
}

// Up to two vectors [dim], and the partial sums [blocks, dim] to add to each.
struct ColumnSums {
  float* to[2];
  const float* from[2];
};

namespace column_sums {
constexpr int columns = 32, lanes = 32;  // per block; each lane adds a range of rows

__global__ static void __launch_bounds__(columns* lanes) kernel(ColumnSums sums, int rows, int dim) {
  __shared__ float part[lanes][columns];
  const bool second = blockIdx.y > 0;  // indexing the arrays would move the pointers to local memory
  const float* const from = second ? sums.from[1] : sums.from[0];
  const int lane = static_cast<int>(threadIdx.x) / columns, i = static_cast<int>(threadIdx.x) % columns;
  const int column = static_cast<int>(blockIdx.x) * columns + i, share = (rows + lanes - 1) / lanes,
            end = min(rows, (lane + 1) * share);
  float sum = 0;
  hopper::griddep_wait();  // the kernel before has completed; this one starts while its last blocks run
  if (column < dim)
#pragma unroll 8
    for (int r = lane * share; r < end; ++r) sum += from[int64_t{r} * dim + column];
  part[lane][i] = sum;
  __syncthreads();  // the sums of all lanes are in shared memory
  if (lane > 0 || column >= dim) return;
  float total = 0;
#pragma unroll
  for (int l = 0; l < lanes; ++l) total += part[l][i];
  (second ? sums.to[1] : sums.to[0])[column] += total;
}
}  // namespace column_sums

// Adds the sums over rows of from [rows, dim] to `to`, for each pair; pairs with an empty `to` are skipped.
inline void add_column_sums(Context& context, const OpBase& op,
                            std::initializer_list<std::pair<Tensor, Tensor>> to_and_from) {
  ColumnSums sums{};
  int count = 0, rows = 0, dim = 0;
  for (const auto& [to, from] : to_and_from)
    if (to) {
      sums.to[count] = numbers<float>(to);
      sums.from[count] = numbers<const float>(from);
      rows = static_cast<int>(from.dim(0));
      dim = static_cast<int>(from.dim(1));
      ++count;
    }
  if (count == 0) return;
  const dim3 grid(static_cast<unsigned>((dim + column_sums::columns - 1) / column_sums::columns),
                  static_cast<unsigned>(count));
  launch_pdl(cuda_stream(context), column_sums::kernel, grid, column_sums::columns * column_sums::lanes, 0, 1, sums,
             rows, dim);
  check_launch(op);
}

}  // namespace hone
