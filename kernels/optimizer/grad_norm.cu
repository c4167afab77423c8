// Gradient norm and clip factor on a GPU.
//
// Use       sum_squares, clip_factor.
// Tile      squares_kernel: a piece of 2^15 elements per block. add_pieces_kernel: one block. clip_kernel: one thread.
// Roles     512 threads, all alike.
// Pipeline  none; loop unrolled by 4.
// Smem      static, 128 bytes.
// Numerics  f64. Element i of a piece belongs to thread i / 4 mod 512, aligned or not. Lanes are added by a butterfly,
//           warps in ascending order; thread t adds pieces t, t + 512, ... The element count alone decides the order.
// PDL       none.
// Limits    none.
#include "kernels/check_shape.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/optimizer/optimizer.h"

namespace hone {
namespace {

constexpr int threads = 512;
constexpr int64_t per_piece = int64_t{1} << 15;

// Thread 0 uses the result: a butterfly over the lanes of a warp, then warps in ascending order.
__device__ double block_sum_f64(double x) {
  __shared__ double sums[threads / 32];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();  // the sums of all warps are in shared memory
  double sum = 0;
  for (int w = 0; w < threads / 32; ++w) sum += sums[w];
  return sum;
}

// Sum of the squares of one piece.
__global__ void __launch_bounds__(threads) squares_kernel(double* partial, const float* x, int64_t count, bool packed) {
  const int64_t begin = int64_t{blockIdx.x} * per_piece;
  const int64_t size = count - begin < per_piece ? count - begin : per_piece;
  x += begin;
  double sum[4] = {};
#pragma unroll 4
  for (int64_t i = int64_t{threadIdx.x} * 4; i < size; i += threads * 4) {
    float part[4] = {};
    if (packed && i + 4 <= size)
      load_vec(part, x + i);
    else
      for (int j = 0; j < 4 && i + j < size; ++j) part[j] = x[i + j];
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] = fma(double{part[j]}, double{part[j]}, sum[j]);
  }
  const double total = block_sum_f64((sum[0] + sum[1]) + (sum[2] + sum[3]));
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(threads) add_pieces_kernel(double* sum, const double* partial, int64_t pieces) {
  double part = 0;
  for (int64_t p = threadIdx.x; p < pieces; p += threads) part += partial[p];
  const double total = block_sum_f64(part);
  if (threadIdx.x == 0) *sum += total;
}

__global__ void clip_kernel(float* clip, float* norm, const double* sum, float max_norm) {
  const double root = sqrt(*sum), factor = max_norm > 0 ? double{max_norm} / (root + 1e-6) : 1;
  *norm = static_cast<float>(root);
  *clip = static_cast<float>(factor > 1 ? 1 : factor);  // NaN stays NaN
}

void add_squares(Context& context, Tensor sum, Tensor x) {
  const int64_t count = x.dim(0), pieces = (count + per_piece - 1) / per_piece;
  check_shape(sum_squares, "sum", sum, {1}, DType::f64);
  check_shape(sum_squares, "x", x, {count});
  if (count == 0) return;
  const ScratchScope scope(context);
  double* partial = numbers<double>(context.scratch().take(DType::f64, {pieces}));
  squares_kernel<<<static_cast<unsigned>(pieces), threads, 0, cuda_stream(context)>>>(
      partial, numbers<const float>(x), count, reinterpret_cast<uintptr_t>(x.data) % 16 == 0);
  check_launch(sum_squares);
  add_pieces_kernel<<<1, threads, 0, cuda_stream(context)>>>(numbers<double>(sum), partial, pieces);
  check_launch(sum_squares);
}

void clip_of(Context& context, Tensor clip, Tensor norm, Tensor sum, float max_norm) {
  check_shape(clip_factor, "clip", clip, {1});
  check_shape(clip_factor, "norm", norm, {1});
  check_shape(clip_factor, "sum", sum, {1}, DType::f64);
  clip_kernel<<<1, 1, 0, cuda_stream(context)>>>(numbers<float>(clip), numbers<float>(norm), numbers<const double>(sum),
                                                 max_norm);
  check_launch(clip_factor);
}

[[maybe_unused]] const bool added = sum_squares.add({"pieces", DeviceKind::cuda, add_squares}) &&
                                    clip_factor.add({"scalar", DeviceKind::cuda, clip_of});

}  // namespace
}  // namespace hone
