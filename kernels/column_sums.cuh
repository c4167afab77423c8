#pragma once
// Gradients of vectors that all rows share (a norm's weight, a bias): ranges of rows, fixed by the shapes, are summed in registers, the ranges then
// in ascending order.
#include "kernels/row_tile.cuh"

namespace hone {

// How the rows of a backward pass are cut: `count` blocks of `groups` rows at a time. At most 264 blocks are two for each multiprocessor of an H100
// or H200; the number is fixed, since it decides the order of sums.
struct RowBlocks {
  int groups, threads, rows_a_block, count;
  RowBlocks(int64_t rows, int warps) : groups(std::max(1, 8 / warps)), threads(32 * warps * groups) {
    const int64_t share = (rows + 263) / 264;
    rows_a_block = static_cast<int>((share + groups - 1) / groups * groups);
    count = static_cast<int>((rows + rows_a_block - 1) / rows_a_block);
  }
};

// to [dim] = the sums of a block's groups in ascending order; `shared` holds dim floats where there are several.
template <class T, int P>
__device__ inline void add_groups(float* to, float* shared, const float (&sums)[P][pack_size<T>], int dim, RowThread at, int groups) {
  for (int group = 0; group < groups; ++group) {
    if (group > 0) __syncthreads();
    if (at.row != group) continue;
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int j = 0; j < pack_size<T>; ++j)
        if (const int i = RowTile<T, P>::column(p, at) + j; i < dim)
          (group == groups - 1 ? to : shared)[i] = group > 0 ? shared[i] + sums[p][j] : sums[p][j];
  }
}

namespace column_sums {
constexpr int columns = 32, lanes = 32;  // of a block; each lane adds a range of rows

__global__ static void __launch_bounds__(columns* lanes) kernel(float* to, const float* from, int rows, int dim) {
  __shared__ float part[lanes][columns];
  const int lane = static_cast<int>(threadIdx.x) / columns, i = static_cast<int>(threadIdx.x) % columns;
  const int column = static_cast<int>(blockIdx.x) * columns + i, share = (rows + lanes - 1) / lanes, end = min(rows, (lane + 1) * share);
  float sum = 0;
  if (column < dim)
#pragma unroll 8
    for (int r = lane * share; r < end; ++r) sum += from[int64_t{r} * dim + column];
  part[lane][i] = sum;
  __syncthreads();
  if (lane > 0 || column >= dim) return;
  float total = 0;
#pragma unroll
  for (int l = 0; l < lanes; ++l) total += part[l][i];
  to[column] += total;
}
}  // namespace column_sums

// to [dim] += the sums of from [rows, dim] over rows.
inline void add_column_sums(Context& context, const OpBase& op, Tensor to, Tensor from) {
  const int dim = static_cast<int>(from.dim(1));
  column_sums::
      kernel<<<(dim + column_sums::columns - 1) / column_sums::columns, column_sums::columns * column_sums::lanes, 0, cuda_stream(context)>>>(
          numbers<float>(to), numbers<const float>(from), static_cast<int>(from.dim(0)), dim);
  check_launch(op);
}

}  // namespace hone
