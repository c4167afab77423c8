// CUDA bodies of grouped_gemm_backward_input and grouped_gemm_backward_weight: products whose second operand has the
// reduction dimension as its rows.
//
// Use       "mma": bf16, 16-byte aligned rows. "tiles": every dtype and alignment.
// Tile      mma: 128 x 128 of the output, K step 32. tiles: 64 x 64, K step 16. input: rows of an expert by columns of
//           w. weight: rows of an expert's matrix by its columns; the sum runs over the expert's rows.
// Roles     mma: 8 warps of 64 x 32. tiles: 256 threads of 4 x 4 elements. All threads copy.
// Pipeline  mma: 4 smem stages (cp.async), one __syncthreads() per stage. tiles: one buffer, no overlap.
// Smem      mma: dynamic, 4 * (8 + 8) KB: 64 KB. A 16-byte unit u of row r lies at u ^ (r & 7) in rows of 128
//           elements and at u ^ (r >> 1 & 3) in rows of 32. tiles: static, 2 * 16 * 68 f32: 8.5 KB.
// Numerics  f32 accumulator, ascending along the reduction. weight: each element gets one addition (adds_once.h).
// PDL       none.
// Limits    mma: rows of all operands 16-byte aligned, their lengths multiples of 8; fewer than 2^31 rows and tiles.
#include "kernels/adds_once.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/moe/group_tiles.cuh"
#include "kernels/moe/grouped_gemm.h"

namespace hone {
namespace {

// out [M, N] = a . b, or += with `add`. b is [K, N]; a is [M, K], or [K, M] if transposed.
template <class T>
struct Product {
  const T *a, *b;
  void* out;
  int64_t a_stride, b_stride, out_stride;
  int M, N, K;
  bool out_bf16;
  __device__ void put(float x, int m, int n, bool add) const {
    const int64_t at = m * out_stride + n;
    if (out_bf16)
      static_cast<__nv_bfloat16*>(out)[at] = __float2bfloat16_rn(x);
    else
      static_cast<float*>(out)[at] = add ? static_cast<float*>(out)[at] + x : x;
  }
};

struct GroupShape {
  const int32_t* offsets;
  int num_experts, rows, n_tiles;
  int64_t matrix;  // elements from an expert's matrix of w or dw to the next one's
};

// The product of a thread block and the first element of its tile. False: nothing to compute.
template <int height, int width, bool weight, class T>
__device__ bool find_product(Product<T>& of, const GroupShape& groups, int& row, int& column) {
  const int number = static_cast<int>(blockIdx.x) / groups.n_tiles;
  column = static_cast<int>(blockIdx.x) % groups.n_tiles * width;
  if constexpr (weight) {
    const int e = static_cast<int>(blockIdx.y), begin = groups.offsets[e];
    row = number * height;
    of.K = groups.offsets[e + 1] - begin;
    of.a += begin * of.a_stride;
    of.b += begin * of.b_stride;
    of.out = static_cast<float*>(of.out) + e * groups.matrix;
    return of.K > 0;
  } else {
    const GroupTile tile = find_group_tile(groups.offsets, groups.num_experts, groups.rows, height, number);
    if (tile.expert < 0) return false;
    row = tile.row;
    of.M = tile.end;
    if (tile.expert < groups.num_experts) {
      of.b += tile.expert * groups.matrix;
      return true;
    }
    if (of.out_bf16)
      store_zeros(static_cast<__nv_bfloat16*>(of.out), of.out_stride, row, of.M, height, column, of.N, width);
    else
      store_zeros(static_cast<float*>(of.out), of.out_stride, row, of.M, height, column, of.N, width);
    return false;
  }
}

constexpr int side = 128, depth = 32, stages = 4, threads = 256;
constexpr int operand_bytes = side * depth * 2, stage_bytes = 2 * operand_bytes, shared_bytes = stages * stage_bytes;

// Copies a stage of an operand: `rows` x `columns` from (row, column) of a matrix; elements outside are zero.
template <int rows, int columns>
__device__ inline void copy_operand(uint32_t to, const __nv_bfloat16* from, int64_t stride, int row, int row_end,
                                    int column, int column_end) {
  constexpr int units = columns / 8, passes = rows * units / threads;
#pragma unroll
  for (int i = 0; i < passes; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * threads, r = at / units, u = at % units;
    const bool inside = row + r < row_end && column + u * 8 < column_end;
    const int swizzled = u ^ (columns == depth ? r >> 1 & 3 : r & 7);
    cp_async(to + static_cast<uint32_t>(r * columns * 2 + (swizzled << 4)),
             inside ? from + int64_t{row + r} * stride + column + u * 8 : from, inside);
  }
}

template <bool weight>
__global__ void __launch_bounds__(threads, 2) mma_kernel(Product<__nv_bfloat16> of, GroupShape groups) {
  extern __shared__ __align__(128) char shared[];
  int row, column;
  if (!find_product<side, side, weight>(of, groups, row, column)) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp % 2 * 64, warp_column = warp / 2 * 32;
  const uint32_t ring = mma::shared_address(shared);
  const int steps = (of.K + depth - 1) / depth;
  const auto copy = [&](int step) {
    const uint32_t to = ring + static_cast<uint32_t>(step % stages * stage_bytes);
    if (step < steps) {
      if constexpr (weight)
        copy_operand<depth, side>(to, of.a, of.a_stride, step * depth, of.K, row, of.M);
      else
        copy_operand<side, depth>(to, of.a, of.a_stride, row, of.M, step * depth, of.K);
      copy_operand<depth, side>(to + operand_bytes, of.b, of.b_stride, step * depth, of.K, column, of.N);
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
    const uint32_t a_at = ring + static_cast<uint32_t>(step % stages * stage_bytes), b_at = a_at + operand_bytes;
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      uint32_t a[4][4], b[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = warp_row + i * 16;
        if constexpr (weight) {
          const int r = k + lane % 8 + lane / 16 * 8, u = m / 8 + lane / 8 % 2;
          mma::ldmatrix_x4_transposed(a_at + static_cast<uint32_t>(r * side * 2 + ((u ^ (r & 7)) << 4)), a[i][0],
                                      a[i][1], a[i][2], a[i][3]);
        } else {
          const int r = m + lane % 16, u = k / 8 + lane / 16;
          mma::ldmatrix_x4(a_at + static_cast<uint32_t>(r * depth * 2 + ((u ^ (r >> 1 & 3)) << 4)), a[i][0], a[i][1],
                           a[i][2], a[i][3]);
        }
      }
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const int r = k + lane % 8 + lane / 8 % 2 * 8, u = (warp_column + j * 8) / 8 + lane / 16;
        mma::ldmatrix_x4_transposed(b_at + static_cast<uint32_t>(r * side * 2 + ((u ^ (r & 7)) << 4)), b[j][0], b[j][1],
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
        if (m < of.M && n < of.N) of.put(sum[i][j][e], m, n, weight);
      }
}

constexpr int small_side = 64, small_depth = 16, pitch = small_side + 4;

template <class T, bool weight>
__global__ void __launch_bounds__(threads) tiles_kernel(Product<T> of, GroupShape groups) {
  __shared__ float as[small_depth][pitch], bs[small_depth][pitch];
  int row, column;
  if (!find_product<small_side, small_side, weight>(of, groups, row, column)) return;
  const int down = static_cast<int>(threadIdx.x) / 16, across = static_cast<int>(threadIdx.x) % 16;
  float sum[4][4] = {};
  for (int k = 0; k < of.K; k += small_depth) {
    for (int i = static_cast<int>(threadIdx.x); i < small_side * small_depth; i += threads) {
      const int kk = weight ? i / small_side : i % small_depth, m = weight ? i % small_side : i / small_depth;
      const bool inside = k + kk < of.K && row + m < of.M;
      const int64_t at = weight ? (k + kk) * of.a_stride + row + m : (row + m) * of.a_stride + k + kk;
      as[kk][m] = inside ? to_f32(of.a[at]) : 0.0f;
      const int b_row = i / small_side, n = i % small_side;
      bs[b_row][n] =
          k + b_row < of.K && column + n < of.N ? to_f32(of.b[(k + b_row) * of.b_stride + column + n]) : 0.0f;
    }
    __syncthreads();  // a and b of the K step are in shared memory
#pragma unroll
    for (int kk = 0; kk < small_depth; ++kk)
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
      if (m < of.M && n < of.N) of.put(sum[i][j], m, n, weight);
    }
}

GroupShape groups_of(const Tensor& offsets, int64_t rows, int64_t columns, int64_t width, int64_t matrix) {
  GroupShape groups{};
  groups.offsets = numbers<const int32_t>(offsets);
  groups.num_experts = static_cast<int>(offsets.dim(0) - 1);
  groups.rows = static_cast<int>(rows);
  groups.n_tiles = static_cast<int>(group_pieces(columns, width));
  groups.matrix = matrix;
  return groups;
}

template <class T>
Product<T> input_product(const GroupedGemmBackwardInput& args) {
  Product<T> of{};
  of.a = numbers<const T>(args.dy);
  of.b = numbers<const T>(args.w);
  of.out = args.dx.data;
  of.a_stride = args.dy.row_stride;
  of.b_stride = args.w.dim(2);
  of.out_stride = args.dx.row_stride;
  of.N = static_cast<int>(args.dx.dim(1));
  of.K = static_cast<int>(args.dy.dim(1));
  of.out_bf16 = args.dx.dtype == DType::bf16;
  return of;
}

template <class T>
Product<T> weight_product(const GroupedGemmBackwardWeight& args) {
  Product<T> of{};
  of.a = numbers<const T>(args.dy);
  of.b = numbers<const T>(args.x);
  of.out = args.dw.data;
  of.a_stride = args.dy.row_stride;
  of.b_stride = args.x.row_stride;
  of.out_stride = args.dw.dim(2);
  of.M = static_cast<int>(args.dy.dim(1));
  of.N = static_cast<int>(args.x.dim(1));
  return of;
}

template <class Kernel, class T>
void launch_input(Context& context, const GroupedGemmBackwardInput& args, Kernel* kernel, const Product<T>& of,
                  int64_t size, size_t bytes) {
  const GroupShape groups = groups_of(args.offsets, args.dx.dim(0), args.dx.dim(1), size, args.w.row_stride);
  const int64_t blocks = max_group_tiles(args.dx.dim(0), groups.num_experts, size) * groups.n_tiles;
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, cuda_stream(context)>>>(of, groups);
  check_launch(grouped_gemm_backward_input);
}

template <class Kernel, class T>
void launch_weight(Context& context, const GroupedGemmBackwardWeight& args, Kernel* kernel, const Product<T>& of,
                   int64_t size, size_t bytes) {
  const GroupShape groups = groups_of(args.offsets, args.x.dim(0), args.x.dim(1), size, args.dw.row_stride);
  const dim3 grid(static_cast<unsigned>(group_pieces(args.dy.dim(1), size) * groups.n_tiles),
                  static_cast<unsigned>(groups.num_experts));
  kernel<<<grid, threads, bytes, cuda_stream(context)>>>(of, groups);
  check_launch(grouped_gemm_backward_weight);
}

void mma_input(Context& context, const GroupedGemmBackwardInput& args) {
  check_grouped_gemm(args);
  if (args.dx.size() == 0) return;
  allow_shared_memory(mma_kernel<false>, shared_bytes);
  launch_input(context, args, mma_kernel<false>, input_product<__nv_bfloat16>(args), side, shared_bytes);
}
void input(Context& context, const GroupedGemmBackwardInput& args) {
  check_grouped_gemm(args);
  if (args.dx.size() == 0) return;
  with_storage(grouped_gemm_backward_input, args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    launch_input(context, args, tiles_kernel<T, false>, input_product<T>(args), small_side, 0);
  });
}

void mma_weight(Context& context, const GroupedGemmBackwardWeight& args) {
  check_grouped_gemm(args);
  if (args.dw.size() == 0 || args.x.dim(0) == 0) return;
  allow_shared_memory(mma_kernel<true>, shared_bytes);
  launch_weight(context, args, mma_kernel<true>, weight_product<__nv_bfloat16>(args), side, shared_bytes);
}
void weight(Context& context, const GroupedGemmBackwardWeight& args) {
  check_grouped_gemm(args);
  if (args.dw.size() == 0 || args.x.dim(0) == 0) return;
  with_storage(grouped_gemm_backward_weight, args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    launch_weight(context, args, tiles_kernel<T, true>, weight_product<T>(args), small_side, 0);
  });
}

bool in_vectors(const Tensor& x) {
  return x.dtype == DType::bf16 && x.row_stride % 8 == 0 && x.dim(-1) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}
bool supports_input(const GroupedGemmBackwardInput& args) { return in_vectors(args.dy) && in_vectors(args.w); }
bool supports_weight(const GroupedGemmBackwardWeight& args) { return in_vectors(args.dy) && in_vectors(args.x); }

[[maybe_unused]] const bool added =
    grouped_gemm_backward_input.add({"mma", DeviceKind::cuda, mma_input, 5, supports_input}) &&
    grouped_gemm_backward_input.add({"tiles", DeviceKind::cuda, input}) &&
    grouped_gemm_backward_weight.add({"mma", DeviceKind::cuda, mma_weight, 5, supports_weight}) &&
    grouped_gemm_backward_weight.add({"tiles", DeviceKind::cuda, weight}) &&
    declare_adds_once(grouped_gemm_backward_weight, DeviceKind::cuda);

void plan_launches(const DeviceLimits&, LaunchPlans& out) {
  out.add("mma_kernel input", mma_kernel<false>, threads, shared_bytes);
  out.add("mma_kernel weight", mma_kernel<true>, threads, shared_bytes);
}
[[maybe_unused]] const bool planned = launch_plans().add("grouped_gemm_backward.mma", plan_launches);

}  // namespace
}  // namespace hone
