#pragma once
// One tile of a product of two matrices that lie by rows or by columns: for kernels that find their matrices themselves
// (of an expert, of a head). Only .cu files include it.
//
// Use       mma_product: bf16, 16-byte aligned rows. fma_product: every dtype and alignment.
// Tile      mma_product: 128 x 128, K step 32. fma_product: 64 x 64, K step 16.
// Roles     mma_product: 8 warps of 64 x 32 (mma.sync). fma_product: 256 threads of 4 x 4 elements. All threads copy.
// Pipeline  mma_product: 4 smem stages (cp.async), one __syncthreads() per stage. fma_product: one buffer, no overlap.
// Smem      mma_product: dynamic, 4 * (8 + 8) KB: 64 KB. A 16-byte unit u of row r lies at u ^ (r & 7) in rows of 128
//           elements and at u ^ (r >> 1 & 3) in rows of 32. fma_product: static, 2 * 16 * 68 f32: 8.5 KB.
// Numerics  f32 accumulator, ascending along the sum. fma_product: an fmaf chain.
// PDL       none.
// Limits    mma_product: rows of both operands 16-byte aligned, their lengths multiples of 8 elements.
#include "kernels/cuda/mma.cuh"

namespace hone {

// The operands of a product by the place of the sum: out [M, N] of a [M, K] and b [N, K] or [K, N], or of a [K, M] and
// b [K, N]. The last adds to out, f32, unless `add` is false; the others write it.
enum class ProductKind : uint8_t { by_rows, by_columns, weight };

template <class T>
struct Product {
  const T *a, *b;
  void* out;
  int64_t a_stride, b_stride, out_stride;  // of rows
  int M, N, K;
  bool out_bf16;
  bool add;  // weight: to what `out` has; false: to 0, so that no element is -0
  // Goes on to other matrices: the numbers are elements from the first ones.
  __device__ void skip(int64_t a_elements, int64_t b_elements, int64_t out_elements) {
    a += a_elements;
    b += b_elements;
    out = static_cast<char*>(out) + out_elements * (out_bf16 ? 2 : 4);
  }
  template <ProductKind kind>
  __device__ void put(float x, int m, int n) const {
    const int64_t at = m * out_stride + n;
    if (kind == ProductKind::weight) {
      float* const to = static_cast<float*>(out) + at;
      *to = (add ? *to : 0.0f) + x;
    } else if (out_bf16) {
      static_cast<__nv_bfloat16*>(out)[at] = __float2bfloat16_rn(x);
    } else {
      static_cast<float*>(out)[at] = x;
    }
  }
};

inline constexpr int product_threads = 256;
inline constexpr int mma_product_side = 128, mma_product_depth = 32, mma_product_stages = 4;
inline constexpr int mma_operand_bytes = mma_product_side * mma_product_depth * 2;
inline constexpr int mma_product_bytes = mma_product_stages * 2 * mma_operand_bytes;  // dynamic shared memory

// The swizzled place of a 16-byte unit of an operand's stage with `columns` elements per row.
template <int columns>
__device__ inline uint32_t product_unit(int row, int unit) {
  const int swizzled = unit ^ (columns == mma_product_depth ? row >> 1 & 3 : row & 7);
  return static_cast<uint32_t>(row * columns * 2 + (swizzled << 4));
}

// Copies an operand's stage: `rows` x `columns` from (row, column) of a matrix; elements outside are zero.
template <int rows, int columns>
__device__ inline void copy_product_stage(uint32_t to, const __nv_bfloat16* from, int64_t stride, int row, int row_end,
                                          int column, int column_end) {
  constexpr int units = columns / 8, passes = rows * units / product_threads;
#pragma unroll
  for (int i = 0; i < passes; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * product_threads, r = at / units, u = at % units;
    const bool inside = row + r < row_end && column + u * 8 < column_end;
    cp_async(to + product_unit<columns>(r, u), inside ? from + int64_t{row + r} * stride + column + u * 8 : from,
             inside);
  }
}

// The tile of `of` whose first element is (row, column). `shared` has mma_product_bytes, 128-byte aligned.
template <ProductKind kind>
__device__ void mma_product(char* shared, const Product<__nv_bfloat16>& of, int row, int column) {
  constexpr int side = mma_product_side, depth = mma_product_depth, stages = mma_product_stages;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp % 2 * 64, warp_column = warp / 2 * 32;
  const uint32_t ring = mma::shared_address(shared);
  const int steps = (of.K + depth - 1) / depth;
  const auto stage_of = [&](int step) { return ring + static_cast<uint32_t>(step % stages * 2 * mma_operand_bytes); };
  const auto copy = [&](int step) {
    const uint32_t to = stage_of(step), b_to = to + mma_operand_bytes;
    if (step < steps) {
      if constexpr (kind == ProductKind::weight)
        copy_product_stage<depth, side>(to, of.a, of.a_stride, step * depth, of.K, row, of.M);
      else
        copy_product_stage<side, depth>(to, of.a, of.a_stride, row, of.M, step * depth, of.K);
      if constexpr (kind == ProductKind::by_rows)
        copy_product_stage<side, depth>(b_to, of.b, of.b_stride, column, of.N, step * depth, of.K);
      else
        copy_product_stage<depth, side>(b_to, of.b, of.b_stride, step * depth, of.K, column, of.N);
    }
    cp_async_commit();
  };
  // Prologue: the first stages.
  for (int step = 0; step < stages - 1; ++step) copy(step);
  float sum[4][4][4] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<stages - 2>();
    __syncthreads();  // all copies of this stage have landed; all warps have read the one before
    copy(step + stages - 1);
    const uint32_t a_at = stage_of(step), b_at = a_at + mma_operand_bytes;
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      uint32_t a[4][4], b[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = warp_row + i * 16;
        if constexpr (kind == ProductKind::weight)
          mma::ldmatrix_x4_transposed(a_at + product_unit<side>(k + lane % 8 + lane / 16 * 8, m / 8 + lane / 8 % 2),
                                      a[i][0], a[i][1], a[i][2], a[i][3]);
        else
          mma::ldmatrix_x4(a_at + product_unit<depth>(m + lane % 16, k / 8 + lane / 16), a[i][0], a[i][1], a[i][2],
                           a[i][3]);
      }
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const int n = warp_column + j * 8;
        if constexpr (kind == ProductKind::by_rows)
          mma::ldmatrix_x4(b_at + product_unit<depth>(n + lane % 8 + lane / 16 * 8, k / 8 + lane / 8 % 2), b[j][0],
                           b[j][1], b[j + 1][0], b[j + 1][1]);
        else
          mma::ldmatrix_x4_transposed(b_at + product_unit<side>(k + lane % 16, n / 8 + lane / 16), b[j][0], b[j][1],
                                      b[j + 1][0], b[j + 1][1]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) mma::mma_bf16(sum[i][j], a[i], b[j]);
    }
  }
  // Epilogue.
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = row + warp_row + i * 16 + lane / 4 + e / 2 * 8,
                  n = column + warp_column + j * 8 + lane % 4 * 2 + e % 2;
        if (m < of.M && n < of.N) of.template put<kind>(sum[i][j][e], m, n);
      }
}

inline constexpr int fma_product_side = 64;

// The tile of `of` whose first element is (row, column).
template <ProductKind kind, class T>
__device__ void fma_product(const Product<T>& of, int row, int column) {
  constexpr int side = fma_product_side, depth = 16, pitch = side + 4;
  __shared__ float as[depth][pitch], bs[depth][pitch];
  const int down = static_cast<int>(threadIdx.x) / 16, across = static_cast<int>(threadIdx.x) % 16;
  constexpr bool a_turned = kind == ProductKind::weight, b_turned = kind != ProductKind::by_rows;
  float sum[4][4] = {};
  for (int k = 0; k < of.K; k += depth) {
    for (int i = static_cast<int>(threadIdx.x); i < side * depth; i += product_threads) {
      const int ak = a_turned ? i / side : i % depth, m = a_turned ? i % side : i / depth;
      const int bk = b_turned ? i / side : i % depth, n = b_turned ? i % side : i / depth;
      const bool a_inside = k + ak < of.K && row + m < of.M, b_inside = k + bk < of.K && column + n < of.N;
      const int64_t a_at = a_turned ? (k + ak) * of.a_stride + row + m : (row + m) * of.a_stride + k + ak;
      const int64_t b_at = b_turned ? (k + bk) * of.b_stride + column + n : (column + n) * of.b_stride + k + bk;
      as[ak][m] = a_inside ? to_f32(of.a[a_at]) : 0.0f;
      bs[bk][n] = b_inside ? to_f32(of.b[b_at]) : 0.0f;
    }
    __syncthreads();  // a and b of the K step are in shared memory
#pragma unroll
    for (int kk = 0; kk < depth; ++kk)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(as[kk][down + 16 * i], bs[kk][across + 16 * j], sum[i][j]);
    __syncthreads();  // all threads have read them
  }
  // Epilogue.
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int m = row + down + 16 * i, n = column + across + 16 * j;
      if (m < of.M && n < of.N) of.template put<kind>(sum[i][j], m, n);
    }
}

}  // namespace hone
