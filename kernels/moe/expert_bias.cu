// CUDA bodies of the biases of experts.
//
// Use       every shape.
// Tile      forward: elementwise, with the row's expert found by bisection. sum_kernel: 32 columns of one expert per
//           block. dot_kernel: one choice per warp.
// Roles     sum: 8 warps; a warp adds every 8th row of the expert, one column per lane. dot: 8 warps, all alike.
// Pipeline  none.
// Smem      sum: static, 1 KB. Others: none.
// Numerics  f32. sum: rows w, w + 8, ... of the expert from zero, then warps in ascending order; one addition to each
//           element (adds_once.h). dot: fmaf over columns 32 apart, then a butterfly; one addition.
// PDL       none.
// Limits    none.
#include "kernels/adds_once.h"
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/moe/expert_bias.h"

namespace hone {
namespace {

constexpr int warps = 8;

template <class T>
struct CopyBias {
  T* y;
  const T* bias;
  const int32_t* offsets;
  int64_t y_stride, bias_stride;
  int num_experts;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    int low = 0, high = num_experts;  // the row's expert is in [low, high]; num_experts: none
    while (low < high) {
      const int middle = (low + high) / 2;
      if (row < offsets[middle + 1])
        high = middle;
      else
        low = middle + 1;
    }
    float value[N] = {};
    if (low < num_experts) load_numbers(value, bias + low * bias_stride + column);
    store_numbers(y + row * y_stride + column, value);
  }
};

template <class T>
__global__ void __launch_bounds__(32 * warps)
    sum_kernel(float* dbias, const T* dy, const int32_t* offsets, const float* weights, const int32_t* order,
               int64_t dbias_stride, int64_t dy_stride, int64_t columns) {
  __shared__ float sums[warps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32,
            expert = static_cast<int>(blockIdx.y);
  const int64_t column = int64_t{blockIdx.x} * 32 + lane;
  const int end = offsets[expert + 1];
  float sum = 0;
  if (column < columns)
    for (int r = offsets[expert] + warp; r < end; r += warps)
      sum = fmaf(weights ? weights[order[r]] : 1.0f, to_f32(dy[r * dy_stride + column]), sum);
  sums[warp][lane] = sum;
  __syncthreads();  // the sums of all warps are written
  if (warp > 0 || column >= columns) return;
  for (int w = 1; w < warps; ++w) sum += sums[w][lane];
  dbias[expert * dbias_stride + column] += sum;
}

template <class T>
__global__ void __launch_bounds__(32 * warps)
    dot_kernel(float* dweights, const T* dy, const T* bias, const int32_t* experts, const int32_t* places,
               int64_t choices, int k, int64_t columns, int64_t dweights_stride, int64_t dy_stride,
               int64_t bias_stride) {
  const int64_t choice = int64_t{blockIdx.x} * warps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (choice >= choices || places[choice] < 0) return;
  const T *const left = dy + places[choice] * dy_stride, *const right = bias + experts[choice] * bias_stride;
  float sum = 0;
  for (int64_t i = lane; i < columns; i += 32) sum = fmaf(to_f32(left[i]), to_f32(right[i]), sum);
  sum = warp_sum(sum);
  if (lane == 0) dweights[choice / k * dweights_stride + choice % k] += sum;
}

void forward(Context& context, const ExpertBiasForward& args) {
  check_expert_bias(args);
  const int64_t P = args.y.dim(0), N = args.y.dim(1);
  with_storage(expert_bias_forward, args.y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int V = vec_size<T>;
    launch_elementwise<V>(
        cuda_stream(context), {P, N}, packs_of(V, 2, args.y) && packs_of(V, 2, args.bias),
        CopyBias<T>{numbers<T>(args.y), numbers<const T>(args.bias), numbers<const int32_t>(args.offsets),
                    args.y.row_stride, args.bias.row_stride, static_cast<int>(args.bias.dim(0))});
  });
  check_launch(expert_bias_forward);
}

void backward(Context& context, const ExpertBiasBackward& args) {
  check_expert_bias(args);
  const int64_t E = args.dbias.dim(0), N = args.dy.dim(1);
  HONE_CHECK(E < 65536, "expert_bias_backward: ", E, " experts; the maximum is 65535");
  if (N == 0) return;
  with_storage(expert_bias_backward, args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    const dim3 grid(static_cast<unsigned>((N + 31) / 32), static_cast<unsigned>(E));
    sum_kernel<T><<<grid, 32 * warps, 0, cuda_stream(context)>>>(
        numbers<float>(args.dbias), numbers<const T>(args.dy), numbers<const int32_t>(args.offsets),
        args.weights ? numbers<const float>(args.weights) : nullptr,
        args.weights ? numbers<const int32_t>(args.order) : nullptr, args.dbias.row_stride, args.dy.row_stride, N);
  });
  check_launch(expert_bias_backward);
}

void weights(Context& context, const ExpertBiasWeights& args) {
  check_expert_bias(args);
  const int64_t choices = args.places.size();
  if (choices == 0) return;
  with_storage(expert_bias_weights, args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    dot_kernel<T><<<static_cast<unsigned>((choices + warps - 1) / warps), 32 * warps, 0, cuda_stream(context)>>>(
        numbers<float>(args.dweights), numbers<const T>(args.dy), numbers<const T>(args.bias),
        numbers<const int32_t>(args.experts), numbers<const int32_t>(args.places), choices,
        static_cast<int>(args.places.dim(1)), args.dy.dim(1), args.dweights.row_stride, args.dy.row_stride,
        args.bias.row_stride);
  });
  check_launch(expert_bias_weights);
}

[[maybe_unused]] const bool added = expert_bias_forward.add({"elementwise", DeviceKind::cuda, forward}) &&
                                    expert_bias_backward.add({"columns", DeviceKind::cuda, backward}) &&
                                    declare_adds_once(expert_bias_backward, DeviceKind::cuda) &&
                                    expert_bias_weights.add({"warps", DeviceKind::cuda, weights});

}  // namespace
}  // namespace hone
