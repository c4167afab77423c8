// Gradient norm and clip factor on a GPU.
//
// Use       sum_squares, sum_pieces, clip_factor.
// Tile      squares_kernel: a piece per block. add_pieces_kernel: one block. clip_kernel: one thread.
// Roles     squares_kernel: 128 threads, add_pieces_kernel: 512, all alike.
// Pipeline  none; loop unrolled by 8 (a piece of 4,096 elements is in flight at once).
// Smem      static, 32 or 128 bytes.
// Numerics  f64. Element i of a piece belongs to thread i / 4 mod 128, aligned or not. Lanes are added by a butterfly,
//           warps in ascending order; thread t of 512 adds pieces t, t + 512, ... The number of elements of a piece,
//           and the number of pieces, alone decide the orders.
// PDL       none.
// Limits    none.
#include "kernels/check_shape.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/optimizer/internal.h"

namespace hone {
namespace {

constexpr int piece_threads = 128, sum_threads = 512;

// Thread 0 uses the result: a butterfly over the lanes of a warp, then warps in ascending order.
template <int threads>
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
__global__ void __launch_bounds__(piece_threads)
    squares_kernel(double* pieces, const float* x, int64_t count, int64_t per_piece, bool packed) {
  const int64_t begin = int64_t{blockIdx.x} * per_piece;
  const int64_t size = count - begin < per_piece ? count - begin : per_piece;
  x += begin;
  double sum[4] = {};
#pragma unroll 8
  for (int64_t i = int64_t{threadIdx.x} * 4; i < size; i += piece_threads * 4) {
    float part[4] = {};
    if (packed && i + 4 <= size)
      load_vec(part, x + i);
    else
      for (int j = 0; j < 4 && i + j < size; ++j) part[j] = x[i + j];
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] = fma(double{part[j]}, double{part[j]}, sum[j]);
  }
  const double total = block_sum_f64<piece_threads>((sum[0] + sum[1]) + (sum[2] + sum[3]));
  if (threadIdx.x == 0) pieces[blockIdx.x] = total;
}

__global__ void __launch_bounds__(sum_threads) add_pieces_kernel(double* sum, const double* pieces, int64_t count) {
  double part = 0;
  for (int64_t p = threadIdx.x; p < count; p += sum_threads) part += pieces[p];
  const double total = block_sum_f64<sum_threads>(part);
  if (threadIdx.x == 0) *sum = total;
}

__global__ void clip_kernel(float* clip, float* norm, const double* sum, float max_norm) {
  const double root = sqrt(*sum), factor = max_norm > 0 ? double{max_norm} / (root + 1e-6) : 1;
  *norm = static_cast<float>(root);
  *clip = static_cast<float>(factor > 1 ? 1 : factor);  // NaN stays NaN
}

void squares_of_pieces(Context& context, Tensor pieces, Tensor x, int64_t size) {
  check_pieces(pieces, x, size);
  if (pieces.dim(0) == 0) return;
  squares_kernel<<<static_cast<unsigned>(pieces.dim(0)), piece_threads, 0, cuda_stream(context)>>>(
      numbers<double>(pieces), numbers<const float>(x), x.dim(0), size, reinterpret_cast<uintptr_t>(x.data) % 16 == 0);
  check_launch(sum_squares);
}

void add_pieces(Context& context, Tensor sum, Tensor pieces) {
  check_pieces(sum, pieces);
  add_pieces_kernel<<<1, sum_threads, 0, cuda_stream(context)>>>(numbers<double>(sum), numbers<const double>(pieces),
                                                                 pieces.dim(0));
  check_launch(sum_pieces);
}

void clip_of(Context& context, Tensor clip, Tensor norm, Tensor sum, float max_norm) {
  check_shape(clip_factor, "clip", clip, {1});
  check_shape(clip_factor, "norm", norm, {1});
  check_shape(clip_factor, "sum", sum, {1}, DType::f64);
  clip_kernel<<<1, 1, 0, cuda_stream(context)>>>(numbers<float>(clip), numbers<float>(norm), numbers<const double>(sum),
                                                 max_norm);
  check_launch(clip_factor);
}

[[maybe_unused]] const bool added = sum_squares.add({"pieces", DeviceKind::cuda, squares_of_pieces}) &&
                                    sum_pieces.add({"block", DeviceKind::cuda, add_pieces}) &&
                                    clip_factor.add({"scalar", DeviceKind::cuda, clip_of});

}  // namespace
}  // namespace hone
