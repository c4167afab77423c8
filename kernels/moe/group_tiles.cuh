#pragma once
// Which rows a thread block of a grouped GEMM computes. Rows of an expert are cut into tiles; the tiles of all experts
// are numbered in order. Only .cu files include it.
#include "kernels/cuda/cuda.cuh"

namespace hone {

struct GroupTile {
  int expert;    // the number of experts: rows without an expert; -1: no such tile
  int row, end;  // first row of the tile; end of the expert's rows
};

// Pieces of `size` that cover `count`.
inline int64_t group_pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

// An upper bound of the number of tiles of `height` rows: each expert, and the rows without one, may have a partial
// one.
inline int64_t max_group_tiles(int64_t rows, int64_t num_experts, int64_t height) {
  return rows / height + std::min(rows, num_experts + 1);
}

// Where the next search begins, if the numbers of the tiles rise from call to call.
struct GroupCursor {
  int first = 0, before = 0;  // first expert that the lanes look at; tiles of the experts before it
};

// The tile with this number. All lanes of a warp call it and get the same. A lane looks at one expert at a time.
__device__ inline GroupTile find_group_tile(const int32_t* offsets, int num_experts, int rows, int height, int number,
                                            GroupCursor& cursor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (; cursor.first <= num_experts; cursor.first += 32) {
    const int e = cursor.first + lane;
    const int begin = e <= num_experts ? offsets[e] : rows, end = e < num_experts ? offsets[e + 1] : rows,
              own = (end - begin + height - 1) / height;
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    const int tile = number - (cursor.before + sum - own);
    const unsigned found = __ballot_sync(0xffffffffu, tile >= 0 && tile < own);
    if (found) {
      const int owner = __ffs(found) - 1;
      return {cursor.first + owner, __shfl_sync(0xffffffffu, begin + tile * height, owner),
              __shfl_sync(0xffffffffu, end, owner)};
    }
    cursor.before += __shfl_sync(0xffffffffu, sum, 31);
  }
  return {-1, 0, 0};
}
__device__ inline GroupTile find_group_tile(const int32_t* offsets, int num_experts, int rows, int height, int number) {
  GroupCursor cursor;
  return find_group_tile(offsets, num_experts, rows, height, number, cursor);
}

// Writes zeros to rows [row, min(row + height, end)) and columns [column, min(column + width, N)) of y.
template <class T>
__device__ inline void store_zeros(T* y, int64_t stride, int row, int end, int height, int column, int N, int width) {
  for (int i = static_cast<int>(threadIdx.x); i < height * width; i += static_cast<int>(blockDim.x)) {
    const int r = row + i / width, c = column + i % width;
    if (r < end && c < N) y[r * stride + c] = from_f32<T>(0.0f);
  }
}

}  // namespace hone
