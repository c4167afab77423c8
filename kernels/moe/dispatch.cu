// CUDA bodies of the dispatch ops. Indices are on the device and cannot be checked on the host: a choice of an expert
// that does not exist is dropped.
//
// moe_dispatch is a counting sort in three kernels: choices per expert of each part of 512 choices, their prefix sums,
// places.
//
// Use       every shape.
// Tile      count_kernel, place_kernel: 512 choices per warp. scan_kernel: all experts in one block. gather, combine
//           and weight_backward: elementwise.cuh, and one choice per warp.
// Roles     count and place: one warp per block. scan: 512 threads, one expert each at a time.
// Pipeline  none.
// Smem      count, place: dynamic, E words. scan: static, 64 + 2 words.
// Numerics  integers: the order is exact. combine adds in ascending c with fmaf from 0. weight_backward: a lane adds
//           every 32nd element in ascending order, then warp_sum().
// PDL       none.
// Limits    E words of shared memory.
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/moe/dispatch.h"

namespace hone {
namespace {

constexpr int part = 512;  // choices per warp

// counts [parts, E] = the choices of each expert in a part.
__global__ void __launch_bounds__(32) count_kernel(int32_t* counts, const int32_t* experts, int64_t count, int E) {
  extern __shared__ int32_t found[];
  const int lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < E; e += 32) found[e] = 0;
  __syncwarp();  // the counters are 0
  const int64_t first = int64_t{blockIdx.x} * part;
  for (int i = lane; i < part && first + i < count; i += 32) {
    const int32_t e = experts[first + i];
    if (e >= 0 && e < E) atomicAdd(found + e, 1);
  }
  __syncwarp();  // all choices are counted
  for (int e = lane; e < E; e += 32) counts[int64_t{blockIdx.x} * E + e] = found[e];
}

// Turns counts [parts, E] into the number of the expert's choices in earlier parts, and writes the offsets.
__global__ void __launch_bounds__(512) scan_kernel(int32_t* counts, int32_t* offsets, int parts, int E, int64_t most) {
  constexpr int batch = 8;  // parts in flight
  __shared__ int32_t warp_sums[16], before;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (thread == 0) {
    before = 0;
    offsets[0] = 0;
  }
  for (int first = 0; first < E; first += 512) {
    const int e = first + thread;
    int32_t total = 0;
    for (int p = 0; e < E && p < parts; p += batch) {
      int32_t own[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) own[i] = p + i < parts ? counts[int64_t{p + i} * E + e] : 0;
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (p + i < parts) counts[int64_t{p + i} * E + e] = total;
        total += own[i];
      }
    }
    int32_t sum = total < most ? total : static_cast<int32_t>(most);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int32_t other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();  // the sums of all warps and `before` are stored
    int32_t base = before;
    for (int w = 0; w < warp; ++w) base += warp_sums[w];
    if (e < E) offsets[e + 1] = base + sum;
    __syncthreads();  // all threads have read `before`
    if (thread == 511) before = base + sum;
  }
}

// Writes order and places. `earlier` [parts, E] as scan_kernel leaves it.
__global__ void __launch_bounds__(32)
    place_kernel(int32_t* order, int32_t* places, const int32_t* experts, const int32_t* earlier,
                 const int32_t* offsets, int64_t count, int E) {
  extern __shared__ int32_t next[];  // of each expert: its choices before the current ones
  const int lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < E; e += 32) next[e] = earlier[int64_t{blockIdx.x} * E + e];
  __syncwarp();  // the counters are loaded
  const int64_t first = int64_t{blockIdx.x} * part;
  const int32_t end = offsets[E];
  for (int i = lane; i < part; i += 32) {
    const int64_t choice = first + i;
    const int32_t e = choice < count ? experts[choice] : -1;
    const bool exists = e >= 0 && e < E;
    const unsigned same = __match_any_sync(0xffffffffu, e);
    const int rank = __popc(same & ((1u << lane) - 1));
    const int32_t base = exists ? next[e] : 0;
    __syncwarp();  // all lanes have read the counters
    if (exists && rank == 0) next[e] = base + __popc(same);
    __syncwarp();  // the counters are stored
    if (choice >= count) continue;
    const int32_t place = exists ? offsets[e] + base + rank : 0;
    const bool kept = exists && place < offsets[e + 1];
    places[choice] = kept ? place : -1;
    if (kept) order[place] = static_cast<int32_t>(choice);
    if (choice >= end) order[choice] = -1;
  }
}

void dispatch(Context& context, const MoeDispatch& args) {
  check_moe_dispatch(args);
  const int64_t count = args.experts.size(), most = args.capacity > 0 ? args.capacity : count;
  const int E = static_cast<int>(args.offsets.dim(0) - 1), parts = static_cast<int>((count + part - 1) / part);
  const ScratchScope scope(context);
  int32_t* const counts = numbers<int32_t>(context.scratch().take(DType::i32, {std::max(parts, 1), E}));
  const size_t bytes = static_cast<size_t>(E) * sizeof(int32_t);
  allow_shared_memory(count_kernel, bytes);
  allow_shared_memory(place_kernel, bytes);
  const cudaStream_t stream = cuda_stream(context);
  const auto* const experts = numbers<const int32_t>(args.experts);
  auto* const offsets = numbers<int32_t>(args.offsets);
  if (parts > 0) count_kernel<<<static_cast<unsigned>(parts), 32, bytes, stream>>>(counts, experts, count, E);
  scan_kernel<<<1, 512, 0, stream>>>(counts, offsets, parts, E, most);
  if (parts > 0)
    place_kernel<<<static_cast<unsigned>(parts), 32, bytes, stream>>>(
        numbers<int32_t>(args.order), numbers<int32_t>(args.places), experts, counts, offsets, count, E);
  check_launch(moe_dispatch);
}
size_t dispatch_scratch(const MoeDispatch& args) {
  const int64_t parts = (args.experts.size() + part - 1) / part;
  return static_cast<size_t>(std::max<int64_t>(parts, 1) * (args.offsets.dim(0) - 1)) * sizeof(int32_t);
}

template <class T>
struct GatherChoices {
  T* y;
  const T* x;
  const int32_t* order;
  int64_t y_stride, x_stride, k;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    const int64_t choice = order[row];
    float value[N] = {};
    if (choice >= 0) load_numbers(value, x + choice / k * x_stride + column);
    store_numbers(y + row * y_stride + column, value);
  }
};

template <class T>
struct CombineChoices {
  T* y;
  const T *x, *residual;
  const int32_t* places;
  const float* weights;
  int64_t y_stride, x_stride, residual_stride, weights_stride;
  int k;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float sum[N] = {};
    for (int c = 0; c < k; ++c) {
      const int64_t place = places[row * k + c];
      if (place < 0) continue;
      const float weight = weights ? weights[row * weights_stride + c] : 1.0f;
      float value[N];
      load_numbers(value, x + place * x_stride + column);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = fmaf(weight, value[i], sum[i]);
    }
    if (residual) {
      float more[N];
      load_numbers(more, residual + row * residual_stride + column);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += more[i];
    }
    store_numbers(y + row * y_stride + column, sum);
  }
};

void gather(Context& context, const MoeGather& args) {
  check_moe_gather(args);
  const int64_t P = args.y.dim(0), D = args.y.dim(1), T = args.x.dim(0);
  if (P == 0) return;
  with_storage(moe_gather, args.x.dtype, [&](auto type) {
    using V = decltype(type);
    constexpr int N = vec_size<V>;
    launch_elementwise<N>(
        cuda_stream(context), {P, D}, packs_of(N, P, args.y) && packs_of(N, 2, args.x),
        GatherChoices<V>{numbers<V>(args.y), numbers<const V>(args.x), numbers<const int32_t>(args.order),
                         args.y.row_stride, args.x.row_stride, P / T});
  });
  check_launch(moe_gather);
}

void combine(Context& context, const MoeCombine& args) {
  check_moe_combine(args);
  const int64_t T = args.y.dim(0), D = args.y.dim(1);
  with_storage(moe_combine, args.x.dtype, [&](auto type) {
    using V = decltype(type);
    constexpr int N = vec_size<V>;
    const bool whole =
        packs_of(N, T, args.y) && packs_of(N, 2, args.x) && (!args.residual || packs_of(N, T, args.residual));
    launch_elementwise<N>(cuda_stream(context), {T, D}, whole,
                          CombineChoices<V>{numbers<V>(args.y), numbers<const V>(args.x),
                                            args.residual ? numbers<const V>(args.residual) : nullptr,
                                            numbers<const int32_t>(args.places),
                                            args.weights ? numbers<const float>(args.weights) : nullptr,
                                            args.y.row_stride, args.x.row_stride, args.residual.row_stride,
                                            args.weights.row_stride, static_cast<int>(args.places.dim(1))});
  });
  check_launch(moe_combine);
}

constexpr int weight_warps = 8;

// One choice per warp.
template <class T>
__global__ void __launch_bounds__(32 * weight_warps)
    weight_kernel(float* dweights, T* g, T* h, const float* weights, const int32_t* places, int64_t choices, int k,
                  int64_t F, int64_t dweights_stride, int64_t weights_stride, int64_t g_stride, int64_t h_stride) {
  const int64_t choice = int64_t{blockIdx.x} * weight_warps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (choice >= choices) return;
  const int64_t t = choice / k, c = choice % k, place = places[choice];
  float sum = 0;
  if (place >= 0) {
    const float weight = weights[t * weights_stride + c];
    T *const g_row = g + place * g_stride, *const h_row = h + place * h_stride;
    for (int64_t i = lane; i < F; i += 32) {
      const float left = to_f32(g_row[i]), right = to_f32(h_row[i]);
      sum = fmaf(left, right, sum);
      g_row[i] = from_f32<T>(left * weight);
      h_row[i] = from_f32<T>(right * weight);
    }
  }
  sum = warp_sum(sum);
  if (lane == 0) dweights[t * dweights_stride + c] = sum;
}

void weight_backward(Context& context, const MoeWeightBackward& args) {
  check_moe_weight_backward(args);
  const int64_t choices = args.places.size();
  if (choices == 0) return;
  with_storage(moe_weight_backward, args.g.dtype, [&](auto type) {
    using V = decltype(type);
    weight_kernel<V><<<static_cast<unsigned>((choices + weight_warps - 1) / weight_warps), 32 * weight_warps, 0,
                       cuda_stream(context)>>>(
        numbers<float>(args.dweights), numbers<V>(args.g), numbers<V>(args.h), numbers<const float>(args.weights),
        numbers<const int32_t>(args.places), choices, static_cast<int>(args.places.dim(1)), args.g.dim(1),
        args.dweights.row_stride, args.weights.row_stride, args.g.row_stride, args.h.row_stride);
  });
  check_launch(moe_weight_backward);
}

[[maybe_unused]] const bool added =
    moe_dispatch.add({"counting", DeviceKind::cuda, dispatch, 0, nullptr, dispatch_scratch}) &&
    moe_gather.add({"elementwise", DeviceKind::cuda, gather}) &&
    moe_combine.add({"elementwise", DeviceKind::cuda, combine}) &&
    moe_weight_backward.add({"warps", DeviceKind::cuda, weight_backward});

}  // namespace
}  // namespace hone
