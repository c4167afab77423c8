#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/internal.h"

namespace hone {
namespace {

constexpr int lanes = 8, groups = 32;  // threads across the columns of a block, and down its rows

// partial [slices, N]: the sums of each slice of rows. A thread adds every 32nd row of its slice, the 32 sums are added
// in order.
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
  __syncthreads();
  const int64_t n = int64_t{blockIdx.x} * lanes * pack + threadIdx.x;
  if (threadIdx.x >= lanes * pack || n >= N) return;
  float total = 0;
  for (int i = 0; i < groups; ++i) total += sums[i][threadIdx.x];
  partial[blockIdx.y * N + n] = total;
}

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
