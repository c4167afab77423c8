// Column sums of a matrix, added to `sums` (the bias gradient of gemm_backward_weight).
//
// Use       every dtype and shape on a GPU.
// Tile      slice_kernel: 8 vectors of 16 bytes (or 8 elements if unaligned) of columns by a slice of rows (at least
//           256 rows, at most 64 slices). total_kernel: one column per thread.
// Roles     slice_kernel: 8 threads across by 32 down. total_kernel: 128 threads, all alike.
// Pipeline  none.
// Smem      slice_kernel: static, 32 * (8 * vector + 1) f32: 8.1 KB (bf16) or 4.1 KB (f32).
// Numerics  f32. A thread adds every 32nd row of its slice; then 32 partial sums, then slices, each in ascending order.
//           The order depends on the shape only.
// PDL       none.
// Limits    none.
#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/internal.h"

namespace hone {
namespace {

constexpr int lanes = 8, groups = 32;  // threads across the columns of a block, threads down its rows

// Writes partial [slices, N], the column sums of each slice of rows.
template <class T, int pack>
__global__ void __launch_bounds__(lanes* groups)
    slice_kernel(float* partial, const T* x, int64_t M, int64_t N, int64_t stride, int64_t slice) {
  __shared__ float sums[groups][lanes * pack + 1];
  const int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int64_t column = (int64_t{blockIdx.x} * lanes + lane) * pack;
  const int64_t end = min(M, (int64_t{blockIdx.y} + 1) * slice);
  float sum[pack] = {};
  if (column < N) {
#pragma unroll 4
    for (int64_t m = blockIdx.y * slice + group; m < end; m += groups) {
      float row[pack];
      load_vec(row, x + m * stride + column);
#pragma unroll
      for (int i = 0; i < pack; ++i) sum[i] += row[i];
    }
  }
#pragma unroll
  for (int i = 0; i < pack; ++i) sums[group][lane * pack + i] = sum[i];
  __syncthreads();  // the sums of all 32 row groups are in shared memory
  // One thread per column adds the row groups in order.
  const int64_t n = int64_t{blockIdx.x} * lanes * pack + threadIdx.x;
  if (threadIdx.x >= lanes * pack || n >= N) return;
  float total = 0;
  for (int i = 0; i < groups; ++i) total += sums[i][threadIdx.x];
  partial[blockIdx.y * N + n] = total;
}

// Adds the slices of a column to sums, in ascending order.
__global__ void __launch_bounds__(128) total_kernel(float* sums, const float* partial, int64_t N, int slices) {
  const int64_t n = int64_t{blockIdx.x} * 128 + threadIdx.x;
  if (n >= N) return;
  float total = 0;
#pragma unroll 8
  for (int s = 0; s < slices; ++s) total += partial[s * N + n];
  sums[n] += total;
}

}  // namespace

void add_column_sums(Context& context, const OpBase& op, Tensor sums, Tensor x) {
  const int64_t M = x.dim(0), N = x.dim(1);
  if (M == 0 || N == 0) return;
  const int64_t slice = std::max<int64_t>(256, (M + 63) / 64);
  const int slices = static_cast<int>((M + slice - 1) / slice);
  const ScratchScope scope(context);
  float* partial = numbers<float>(context.scratch().take(DType::f32, {slices, N}));
  with_storage(op, x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto launch = [&](auto kernel, int64_t width) {
      const dim3 grid(static_cast<unsigned>((N + width - 1) / width), static_cast<unsigned>(slices));
      kernel<<<grid, lanes * groups, 0, cuda_stream(context)>>>(partial, numbers<const T>(x), M, N, x.row_stride,
                                                                slice);
    };
    if (packs<T>(x))
      launch(slice_kernel<T, vec_size<T>>, lanes * vec_size<T>);
    else
      launch(slice_kernel<T, 1>, lanes);
  });
  total_kernel<<<static_cast<unsigned>((N + 127) / 128), 128, 0, cuda_stream(context)>>>(numbers<float>(sums), partial,
                                                                                         N, slices);
  check_launch(op);
}

}  // namespace hone
