// CUDA bodies of the products per head. One grid computes the products of all heads.
//
// Use       "mma": bf16, 16-byte aligned rows. "tiles": every dtype and alignment.
// Tile      mma: 128 x 128 of a head's result, K step 32. tiles: 64 x 64, K step 16.
// Roles     mma: 8 warps of 64 x 32. tiles: 256 threads of 4 x 4 elements. All threads copy.
// Pipeline  mma: 4 smem stages (cp.async), one __syncthreads() per stage. tiles: one buffer, no overlap.
// Smem      mma: dynamic, 4 * (8 + 8) KB: 64 KB. A 16-byte unit u of row r lies at u ^ (r & 7) in rows of 128
//           elements and at u ^ (r >> 1 & 3) in rows of 32. tiles: static, 2 * 16 * 68 f32: 8.5 KB.
// Numerics  f32 accumulator, ascending along the sum. weight: each element gets one addition (adds_once.h).
// PDL       none.
// Limits    mma: rows of all operands 16-byte aligned, N, K and heads multiples of 8 elements; fewer than 2^31 tokens.
#include "kernels/adds_once.h"
#include "kernels/attention/latent/head_gemm.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/mma.cuh"

namespace hone {
namespace {

// The operands of a product by the place of the sum: out [M, N] of a [M, K] and b [N, K] or [K, N], or of a [K, M] and
// b [K, N].
enum class ProductKind : uint8_t { by_rows, by_columns, weight };

template <class T>
struct HeadProduct {
  const T *a, *b;
  void* out;
  int64_t a_stride, b_stride, out_stride;  // of rows
  int64_t a_head, b_head, out_head;        // from a head to the next
  int M, N, K, n_tiles;
  bool out_bf16;
  __device__ void put(float x, int m, int n, bool add) const {
    const int64_t at = blockIdx.y * out_head + m * out_stride + n;
    if (out_bf16)
      static_cast<__nv_bfloat16*>(out)[at] = __float2bfloat16_rn(x);
    else
      static_cast<float*>(out)[at] = add ? static_cast<float*>(out)[at] + x : x;
  }
};

constexpr int side = 128, depth = 32, stages = 4, threads = 256;
constexpr int operand_bytes = side * depth * 2, stage_bytes = 2 * operand_bytes, shared_bytes = stages * stage_bytes;

// The swizzled place of a 16-byte unit of a stage with `columns` elements per row.
template <int columns>
__device__ inline uint32_t place_of(int row, int unit) {
  const int swizzled = unit ^ (columns == depth ? row >> 1 & 3 : row & 7);
  return static_cast<uint32_t>(row * columns * 2 + (swizzled << 4));
}

// Copies a stage of an operand: `rows` x `columns` from (row, column) of a matrix; elements outside are zero.
template <int rows, int columns>
__device__ inline void copy_operand(uint32_t to, const __nv_bfloat16* from, int64_t stride, int row, int row_end,
                                    int column, int column_end) {
  constexpr int units = columns / 8, passes = rows * units / threads;
#pragma unroll
  for (int i = 0; i < passes; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * threads, r = at / units, u = at % units;
    const bool inside = row + r < row_end && column + u * 8 < column_end;
    cp_async(to + place_of<columns>(r, u), inside ? from + int64_t{row + r} * stride + column + u * 8 : from, inside);
  }
}

template <ProductKind kind>
__global__ void __launch_bounds__(threads, 2) mma_kernel(HeadProduct<__nv_bfloat16> of) {
  extern __shared__ __align__(128) char shared[];
  const int row = static_cast<int>(blockIdx.x) / of.n_tiles * side,
            column = static_cast<int>(blockIdx.x) % of.n_tiles * side;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp % 2 * 64, warp_column = warp / 2 * 32;
  const uint32_t ring = mma::shared_address(shared);
  const __nv_bfloat16 *const a = of.a + blockIdx.y * of.a_head, *const b = of.b + blockIdx.y * of.b_head;
  const int steps = (of.K + depth - 1) / depth;
  const auto copy = [&](int step) {
    const uint32_t to = ring + static_cast<uint32_t>(step % stages * stage_bytes);
    if (step < steps) {
      if constexpr (kind == ProductKind::weight)
        copy_operand<depth, side>(to, a, of.a_stride, step * depth, of.K, row, of.M);
      else
        copy_operand<side, depth>(to, a, of.a_stride, row, of.M, step * depth, of.K);
      if constexpr (kind == ProductKind::by_rows)
        copy_operand<side, depth>(to + operand_bytes, b, of.b_stride, column, of.N, step * depth, of.K);
      else
        copy_operand<depth, side>(to + operand_bytes, b, of.b_stride, step * depth, of.K, column, of.N);
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
      uint32_t x[4][4], w[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = warp_row + i * 16;
        if constexpr (kind == ProductKind::weight)
          mma::ldmatrix_x4_transposed(a_at + place_of<side>(k + lane % 8 + lane / 16 * 8, m / 8 + lane / 8 % 2),
                                      x[i][0], x[i][1], x[i][2], x[i][3]);
        else
          mma::ldmatrix_x4(a_at + place_of<depth>(m + lane % 16, k / 8 + lane / 16), x[i][0], x[i][1], x[i][2],
                           x[i][3]);
      }
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const int n = warp_column + j * 8;
        if constexpr (kind == ProductKind::by_rows)
          mma::ldmatrix_x4(b_at + place_of<depth>(n + lane % 8 + lane / 16 * 8, k / 8 + lane / 8 % 2), w[j][0], w[j][1],
                           w[j + 1][0], w[j + 1][1]);
        else
          mma::ldmatrix_x4_transposed(b_at + place_of<side>(k + lane % 16, n / 8 + lane / 16), w[j][0], w[j][1],
                                      w[j + 1][0], w[j + 1][1]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) mma::mma_bf16(sum[i][j], x[i], w[j]);
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
        if (m < of.M && n < of.N) of.put(sum[i][j][e], m, n, kind == ProductKind::weight);
      }
}

constexpr int small_side = 64, small_depth = 16, pitch = small_side + 4;

template <class T, ProductKind kind>
__global__ void __launch_bounds__(threads) tiles_kernel(HeadProduct<T> of) {
  __shared__ float as[small_depth][pitch], bs[small_depth][pitch];
  const int row = static_cast<int>(blockIdx.x) / of.n_tiles * small_side,
            column = static_cast<int>(blockIdx.x) % of.n_tiles * small_side;
  const int down = static_cast<int>(threadIdx.x) / 16, across = static_cast<int>(threadIdx.x) % 16;
  const T *const a = of.a + blockIdx.y * of.a_head, *const b = of.b + blockIdx.y * of.b_head;
  constexpr bool a_turned = kind == ProductKind::weight, b_turned = kind != ProductKind::by_rows;
  float sum[4][4] = {};
  for (int k = 0; k < of.K; k += small_depth) {
    for (int i = static_cast<int>(threadIdx.x); i < small_side * small_depth; i += threads) {
      const int ak = a_turned ? i / small_side : i % small_depth, m = a_turned ? i % small_side : i / small_depth;
      const int bk = b_turned ? i / small_side : i % small_depth, n = b_turned ? i % small_side : i / small_depth;
      const bool a_inside = k + ak < of.K && row + m < of.M, b_inside = k + bk < of.K && column + n < of.N;
      const int64_t a_at = a_turned ? (k + ak) * of.a_stride + row + m : (row + m) * of.a_stride + k + ak;
      const int64_t b_at = b_turned ? (k + bk) * of.b_stride + column + n : (column + n) * of.b_stride + k + bk;
      as[ak][m] = a_inside ? to_f32(a[a_at]) : 0.0f;
      bs[bk][n] = b_inside ? to_f32(b[b_at]) : 0.0f;
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
      if (m < of.M && n < of.N) of.put(sum[i][j], m, n, kind == ProductKind::weight);
    }
}

template <class T>
HeadProduct<T> product_of(const HeadGemm& args) {
  HeadProduct<T> of{};
  of.a = numbers<const T>(args.x);
  of.b = numbers<const T>(args.w);
  of.out = args.y.data;
  of.a_stride = args.x.row_stride;
  of.b_stride = args.w.dim(2);
  of.out_stride = args.y.row_stride;
  of.a_head = args.x.dim(2);
  of.b_head = args.w.row_stride;
  of.out_head = args.y.dim(2);
  of.M = static_cast<int>(args.x.dim(0));
  of.N = static_cast<int>(args.transposed ? args.w.dim(2) : args.w.dim(1));
  of.K = static_cast<int>(args.transposed ? args.w.dim(1) : args.w.dim(2));
  of.out_bf16 = args.y.dtype == DType::bf16;
  return of;
}

template <class T>
HeadProduct<T> product_of(const HeadGemmWeight& args) {
  HeadProduct<T> of{};
  of.a = numbers<const T>(args.a);
  of.b = numbers<const T>(args.b);
  of.out = args.dw.data;
  of.a_stride = args.a.row_stride;
  of.b_stride = args.b.row_stride;
  of.out_stride = args.dw.dim(2);
  of.a_head = args.a.dim(2);
  of.b_head = args.b.dim(2);
  of.out_head = args.dw.row_stride;
  of.M = static_cast<int>(args.dw.dim(1));
  of.N = static_cast<int>(args.dw.dim(2));
  of.K = static_cast<int>(args.a.dim(0));
  return of;
}

template <class Kernel, class T>
void launch(Context& context, const OpBase& op, Kernel* kernel, HeadProduct<T> of, int64_t heads, int size,
            size_t bytes) {
  of.n_tiles = (of.N + size - 1) / size;
  const dim3 grid(static_cast<unsigned>((of.M + size - 1) / size * of.n_tiles), static_cast<unsigned>(heads));
  kernel<<<grid, threads, bytes, cuda_stream(context)>>>(of);
  check_launch(op);
}

void mma_forward(Context& context, const HeadGemm& args) {
  check_head_gemm(args);
  if (args.x.dim(0) == 0) return;
  const auto run = [&](auto* kernel) {
    allow_shared_memory(kernel, shared_bytes);
    launch(context, head_gemm, kernel, product_of<__nv_bfloat16>(args), args.w.dim(0), side, shared_bytes);
  };
  if (args.transposed)
    run(mma_kernel<ProductKind::by_columns>);
  else
    run(mma_kernel<ProductKind::by_rows>);
}

void forward(Context& context, const HeadGemm& args) {
  check_head_gemm(args);
  if (args.x.dim(0) == 0) return;
  with_storage(head_gemm, args.x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto run = [&](auto* kernel) {
      launch(context, head_gemm, kernel, product_of<T>(args), args.w.dim(0), small_side, 0);
    };
    if (args.transposed)
      run(tiles_kernel<T, ProductKind::by_columns>);
    else
      run(tiles_kernel<T, ProductKind::by_rows>);
  });
}

void mma_weight(Context& context, const HeadGemmWeight& args) {
  check_head_gemm(args);
  if (args.a.dim(0) == 0) return;
  allow_shared_memory(mma_kernel<ProductKind::weight>, shared_bytes);
  launch(context, head_gemm_weight, mma_kernel<ProductKind::weight>, product_of<__nv_bfloat16>(args), args.dw.dim(0),
         side, shared_bytes);
}

void weight(Context& context, const HeadGemmWeight& args) {
  check_head_gemm(args);
  if (args.a.dim(0) == 0) return;
  with_storage(head_gemm_weight, args.a.dtype, [&](auto type) {
    using T = decltype(type);
    launch(context, head_gemm_weight, tiles_kernel<T, ProductKind::weight>, product_of<T>(args), args.dw.dim(0),
           small_side, 0);
  });
}

bool in_vectors(const Tensor& x) {
  return x.dtype == DType::bf16 && x.row_stride % 8 == 0 && x.dim(2) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}
bool supports(const HeadGemm& args) { return in_vectors(args.x) && in_vectors(args.w) && args.w.dim(1) % 8 == 0; }
bool supports_weight(const HeadGemmWeight& args) {
  return in_vectors(args.a) && in_vectors(args.b) && args.dw.dim(1) % 8 == 0 && args.dw.dim(2) % 8 == 0;
}

[[maybe_unused]] const bool added = head_gemm.add({"mma", DeviceKind::cuda, mma_forward, 5, supports}) &&
                                    head_gemm.add({"tiles", DeviceKind::cuda, forward}) &&
                                    head_gemm_weight.add({"mma", DeviceKind::cuda, mma_weight, 5, supports_weight}) &&
                                    head_gemm_weight.add({"tiles", DeviceKind::cuda, weight}) &&
                                    declare_adds_once(head_gemm_weight, DeviceKind::cuda);

void plan_launches(const DeviceLimits&, LaunchPlans& out) {
  out.add("mma_kernel by rows", mma_kernel<ProductKind::by_rows>, threads, shared_bytes);
  out.add("mma_kernel by columns", mma_kernel<ProductKind::by_columns>, threads, shared_bytes);
  out.add("mma_kernel weight", mma_kernel<ProductKind::weight>, threads, shared_bytes);
}
[[maybe_unused]] const bool planned = launch_plans().add("head_gemm.mma", plan_launches);

}  // namespace
}  // namespace hone
