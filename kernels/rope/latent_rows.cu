// latent_rows_forward and latent_rows_backward on a GPU.
//
// Use       every dtype and shape.
// Tile      one token per thread block: the pairs of all heads and of the row, then the row's latent for the cache.
// Roles     128 threads, all alike; a thread rotates a pair at a time.
// Pipeline  none.
// Smem      none.
// Numerics  f32, rounded once per number.
// PDL       none.
// Limits    fewer than 2^31 tokens.
#include "kernels/cuda/cuda.cuh"
#include "kernels/rope/latent_rows.h"

namespace hone {
namespace {

constexpr int threads = 128;

// `inner`: q and rows or their gradients, with latents. `outer`: what was projected, or its gradients.
template <class T>
struct LatentRowsCall {
  T *inner_q, *inner_row, *outer_q, *outer_row, *cache;
  const int32_t *positions, *slots;
  const float* cos_sin;
  int64_t inner_q_stride, inner_row_stride, outer_q_stride, outer_row_stride, cache_stride, cos_sin_stride;
  int heads, inner_width, outer_width, row_width, half;
  bool interleaved;
};

template <class T, bool back>
__global__ void __launch_bounds__(threads) rotate_kernel(const __grid_constant__ LatentRowsCall<T> call) {
  const int64_t t = blockIdx.x;
  const int half = call.half, thread = static_cast<int>(threadIdx.x);
  const float* const angles = call.cos_sin + call.positions[t] * call.cos_sin_stride;
  T* const cached = call.cache ? call.cache + call.slots[t] * call.cache_stride : nullptr;
  for (int i = thread; i < (call.heads + 1) * half; i += threads) {
    const int head = i / half, pair = i % half;
    const bool is_row = head == call.heads;
    T* const inner = is_row ? call.inner_row + t * call.inner_row_stride
                            : call.inner_q + t * call.inner_q_stride + int64_t{head} * call.inner_width;
    T* const outer = (is_row ? call.outer_row + t * call.outer_row_stride + call.row_width
                             : call.outer_q + t * call.outer_q_stride + int64_t{head + 1} * call.outer_width) -
                     2 * half;
    const int first = call.interleaved ? 2 * pair : pair, second = call.interleaved ? first + 1 : pair + half;
    const int at = call.inner_width - 2 * half + pair;
    const float c = angles[pair], s = angles[half + pair];
    if constexpr (back) {
      const float a = to_f32(inner[at]), b = to_f32(inner[at + half]);
      outer[first] = from_f32<T>(a * c + b * s);
      outer[second] = from_f32<T>(b * c - a * s);
    } else {
      const float a = to_f32(outer[first]), b = to_f32(outer[second]);
      const T x = from_f32<T>(a * c - b * s), y = from_f32<T>(b * c + a * s);
      inner[at] = x;
      inner[at + half] = y;
      if (is_row && cached) {
        cached[at] = x;
        cached[at + half] = y;
      }
    }
  }
  if (!cached) return;
  for (int i = thread; i < call.inner_width - 2 * half; i += threads)
    cached[i] = call.inner_row[t * call.inner_row_stride + i];
}

// q and rows: inner. q_outer and row_outer: outer.
template <class T>
LatentRowsCall<T> call_of(const Tensor& q, const Tensor& rows, const Tensor& q_outer, const Tensor& row_outer,
                          const Tensor& cos_sin) {
  LatentRowsCall<T> call{};
  call.inner_q = numbers<T>(q);
  call.inner_row = numbers<T>(rows);
  call.outer_q = numbers<T>(q_outer);
  call.outer_row = numbers<T>(row_outer);
  call.cos_sin = numbers<const float>(cos_sin);
  call.inner_q_stride = q.row_stride;
  call.inner_row_stride = rows.row_stride;
  call.outer_q_stride = q_outer.row_stride;
  call.outer_row_stride = row_outer.row_stride;
  call.cos_sin_stride = cos_sin.row_stride;
  call.heads = static_cast<int>(q.dim(1));
  call.inner_width = static_cast<int>(q.dim(2));
  call.outer_width = static_cast<int>(q_outer.dim(2));
  call.row_width = static_cast<int>(row_outer.dim(1));
  call.half = static_cast<int>(cos_sin.dim(1) / 2);
  return call;
}

void forward(Context& context, const LatentRowsForward& args) {
  check_latent_rows(args, args.q.dtype);
  if (args.q.dim(0) == 0) return;
  with_storage(latent_rows_forward, args.q.dtype, [&](auto type) {
    using T = decltype(type);
    LatentRowsCall<T> call = call_of<T>(args.q, args.rows, args.q_in, args.row_in, args.cos_sin);
    call.positions = numbers<const int32_t>(args.positions);
    call.interleaved = args.interleaved;
    if (args.cache) {
      call.cache = numbers<T>(args.cache);
      call.cache_stride = args.cache.row_stride;
      call.slots = numbers<const int32_t>(args.slots);
    }
    rotate_kernel<T, false><<<static_cast<unsigned>(args.q.dim(0)), threads, 0, cuda_stream(context)>>>(call);
  });
  check_launch(latent_rows_forward);
}

void backward(Context& context, const LatentRowsBackward& args) {
  check_latent_rows(args, args.dq.dtype);
  if (args.dq.dim(0) == 0) return;
  with_storage(latent_rows_backward, args.dq.dtype, [&](auto type) {
    using T = decltype(type);
    LatentRowsCall<T> call = call_of<T>(args.dq, args.drows, args.dq_in, args.drow_in, args.cos_sin);
    call.positions = numbers<const int32_t>(args.positions);
    call.interleaved = args.interleaved;
    rotate_kernel<T, true><<<static_cast<unsigned>(args.dq.dim(0)), threads, 0, cuda_stream(context)>>>(call);
  });
  check_launch(latent_rows_backward);
}

[[maybe_unused]] const bool added = latent_rows_forward.add({"pairs", DeviceKind::cuda, forward}) &&
                                    latent_rows_backward.add({"pairs", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
