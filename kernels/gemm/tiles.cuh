#pragma once
// The tile of the generic GEMM, y = x . w^T for every shape and alignment: the "tiles" body of gemm_forward and the
// grouped GEMM of a mixture of experts. Only .cu and .cuh files include it.
//
// Use       shapes, alignments and GPUs without a faster body.
// Tile      64 x 64 elements of y, K step 32.
// Roles     bf16: 4 warps of 32 x 32 (mma.sync). f32: 256 threads of 4 x 4 elements. All threads copy.
// Pipeline  one smem buffer of x and one of w, no overlap.
// Smem      static: bf16 2 * 64 * 40 * 2 = 10 KB, f32 2 * 64 * 36 * 4 = 18 KB (rows padded against bank conflicts).
// Numerics  f32 accumulators. K chunks of gemm_cuda_chunk, each from zero, added in ascending order. f32: a chunk is an
//           fmaf chain in ascending k.
// PDL       none.
// Limits    none.
#include "kernels/cuda/mma.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gemm.h"

namespace hone {

inline constexpr int gemm_tile = 64;

// Copies rows [row, row + gemm_tile) and columns [k, k + depth) of a matrix in vectors; elements outside are zero.
template <class T, int threads, int depth, int pitch>
__device__ void load_gemm_stage(T (*to)[pitch], const T* from, int64_t stride, int64_t row, int64_t rows, int64_t k,
                                int64_t K, bool packed) {
  constexpr int pack = vec_size<T>;
  for (int i = static_cast<int>(threadIdx.x); i < gemm_tile * depth / pack; i += threads) {
    const int r = i / (depth / pack), c = i % (depth / pack) * pack;
    Pack<T, pack> numbers{};
    if (row + r < rows) {
      const T* at = from + (row + r) * stride + k + c;
      if (packed && k + c + pack <= K) {
        numbers = *reinterpret_cast<const Pack<T, pack>*>(at);
      } else {
#pragma unroll
        for (int j = 0; j < pack; ++j)
          if (k + c + j < K) numbers.value[j] = at[j];
      }
    }
    *reinterpret_cast<Pack<T, pack>*>(&to[r][c]) = numbers;
  }
}

__device__ inline uint32_t operand_pair(const __nv_bfloat16* at) { return *reinterpret_cast<const uint32_t*>(at); }

// The operands of a tile. Rows of x from M on and rows of w from N on are not read. T: f32 or bf16.
template <class T>
struct GemmOperands {
  const T *x, *w;
  int64_t M, N, K, x_stride, w_stride;
  bool x_packed, w_packed;  // rows can be read in vectors of 16 bytes
};

// 128 threads compute the tile whose first element is (m0, n0): four warps of 32 x 32.
__device__ inline void compute_gemm_tile(const GemmOperands<__nv_bfloat16>& of, int64_t m0, int64_t n0,
                                         const GemmEpilogue& epilogue) {
  constexpr int depth = 32, pitch = depth + 8;  // the pitch avoids bank conflicts of fragment loads
  __shared__ alignas(16) __nv_bfloat16 xs[gemm_tile][pitch], ws[gemm_tile][pitch];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4,
            t = lane % 4;
  const int wm = warp / 2 * 32, wn = warp % 2 * 32;
  float sum[2][4][4] = {}, total[2][4][4] = {};
  for (int64_t k = 0; k < of.K; k += depth) {
    load_gemm_stage<__nv_bfloat16, 128, depth, pitch>(xs, of.x, of.x_stride, m0, of.M, k, of.K, of.x_packed);
    load_gemm_stage<__nv_bfloat16, 128, depth, pitch>(ws, of.w, of.w_stride, n0, of.N, k, of.K, of.w_packed);
    __syncthreads();  // x and w of the K step are in shared memory
#pragma unroll
    for (int step = 0; step < depth; step += 16) {
      uint32_t a[2][4], b[4][2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) a[i][j] = operand_pair(&xs[wm + i * 16 + g + j % 2 * 8][step + 2 * t + j / 2 * 8]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) b[i][j] = operand_pair(&ws[wn + i * 8 + g][step + 2 * t + j * 8]);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) mma::mma_bf16(sum[i][j], a[i], b[j]);
    }
    __syncthreads();  // all warps have read them
    // End of a chunk: add it to the total.
    const bool chunk_ends = (k + depth) % gemm_cuda_chunk == 0 || k + depth >= of.K;
    if (!chunk_ends) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          total[i][j][e] = k < gemm_cuda_chunk ? sum[i][j][e] : total[i][j][e] + sum[i][j][e];
          sum[i][j][e] = 0;
        }
  }
  // Epilogue.
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t m = m0 + wm + i * 16 + g + e / 2 * 8, n = n0 + wn + j * 8 + 2 * t + e % 2;
        if (m < of.M && n < of.N) epilogue.store(total[i][j][e], m, n);
      }
}

// 256 threads compute the tile, 4 x 4 elements each.
__device__ inline void compute_gemm_tile(const GemmOperands<float>& of, int64_t m0, int64_t n0,
                                         const GemmEpilogue& epilogue) {
  constexpr int depth = 32, pitch = depth + 4;
  __shared__ alignas(16) float xs[gemm_tile][pitch], ws[gemm_tile][pitch];
  const int row = static_cast<int>(threadIdx.x) / 16, column = static_cast<int>(threadIdx.x) % 16;
  float sum[4][4] = {}, total[4][4] = {};
  for (int64_t k = 0; k < of.K; k += depth) {
    load_gemm_stage<float, 256, depth, pitch>(xs, of.x, of.x_stride, m0, of.M, k, of.K, of.x_packed);
    load_gemm_stage<float, 256, depth, pitch>(ws, of.w, of.w_stride, n0, of.N, k, of.K, of.w_packed);
    __syncthreads();  // x and w of the K step are in shared memory
#pragma unroll 2
    for (int step = 0; step < depth; step += 4) {
      float a[4][4], b[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) load_vec(a[i], &xs[row + 16 * i][step]);
#pragma unroll
      for (int i = 0; i < 4; ++i) load_vec(b[i], &ws[column + 16 * i][step]);
#pragma unroll
      for (int s = 0; s < 4; ++s)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(a[i][s], b[j][s], sum[i][j]);
    }
    __syncthreads();  // all warps have read them
    // End of a chunk: add it to the total.
    const bool chunk_ends = (k + depth) % gemm_cuda_chunk == 0 || k + depth >= of.K;
    if (!chunk_ends) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        total[i][j] = k < gemm_cuda_chunk ? sum[i][j] : total[i][j] + sum[i][j];
        sum[i][j] = 0;
      }
  }
  // Epilogue.
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t m = m0 + row + 16 * i, n = n0 + column + 16 * j;
      if (m < of.M && n < of.N) epilogue.store(total[i][j], m, n);
    }
}

// The threads of a block that computes a tile.
template <class T>
inline constexpr int gemm_tile_threads = sizeof(T) == 4 ? 256 : 128;

// Unlike packs(), allows any row length: the end of a row is read element by element.
template <class T>
bool gemm_rows_aligned(const Tensor& x) {
  return x.row_stride % vec_size<T> == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

}  // namespace hone
