#include "kernels/launch_dependent.cuh"
#include "kernels/qkv.cuh"
#include "kernels/qkv_args.h"

namespace hone {
namespace {

template <class T>
struct Forward {
  HeadLayout layout;
  int tokens, heads, kv_heads;
  T *q, *k, *cache_k, *cache_v;
  float* rstd;
  const T *qkv, *q_norm, *k_norm;
  const float* cos_sin;
  const int32_t *positions, *slots;
  int64_t q_stride, k_stride, rstd_stride, qkv_stride, cos_sin_stride, cache_k_stride, cache_v_stride;
  float eps;
};

template <int P, int N>
__device__ void scale_head(HeadPart<P, N>& x, float scale, const HeadPart<P, N>& weight) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < P; ++i) x[n][0][i] *= scale * weight[n][0][i], x[n][1][i] *= scale * weight[n][1][i];
}

// A block takes a chunk of neighbouring heads of one kind (q, then k, then v where there is a cache) of as many tokens as it has groups of lanes.
template <class T, int P, int N>
__global__ void __launch_bounds__(qkv_threads) forward_kernel(const Forward<T> a) {
  constexpr int R = heads_at_once<N>;
  hopper::let_next_start(), hopper::wait_for_previous();
  const HeadLayout& layout = a.layout;
  const HeadChunk chunk(a.heads, a.kv_heads, R);
  const int lane = layout.lane(), token = static_cast<int>(blockIdx.y) * layout.groups() + layout.group();
  const bool inside = token < a.tokens, turns = inside && !chunk.is_value && layout.half > 0;
  const int64_t t = inside ? token : 0, position = turns ? a.positions[t] : 0;
  const T* const from = a.qkv + t * a.qkv_stride + int64_t{chunk.column} * layout.dim;
  StoredPart<T, P, N> stored[R];
#pragma unroll
  for (int r = 0; r < R; ++r) stored[r] = load_head<P, N>(from + r * layout.dim, layout, lane, inside && r < chunk.count);
  const auto angles = load_angles<P, N>(a.cos_sin + position * a.cos_sin_stride, layout, lane, turns);
  T* to = chunk.is_query ? a.q + t * a.q_stride : a.k + t * a.k_stride;
  T* cached = nullptr;
  if (a.cache_k && inside && !chunk.is_query)
    cached = chunk.is_value ? a.cache_v + a.slots[t] * a.cache_v_stride : a.cache_k + a.slots[t] * a.cache_k_stride;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const bool here = inside && r < chunk.count;
    const int h = chunk.first + r;
    HeadPart<P, N> x;
    convert<P, N>(x, stored[r]);
    if (a.q_norm && !chunk.is_value) {
      float squares = 0;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < P; ++i) squares = fmaf(x[n][0][i], x[n][0][i], fmaf(x[n][1][i], x[n][1][i], squares));
      const float scale = 1 / sqrtf(head_sum(squares, layout.lanes) / static_cast<float>(layout.dim) + a.eps);
      HeadPart<P, N> weight;
      convert<P, N>(weight, load_head<P, N>(chunk.is_query ? a.q_norm : a.k_norm, layout, lane, true));
      scale_head<P, N>(x, scale, weight);
      if (a.rstd && lane == 0 && here) a.rstd[t * a.rstd_stride + chunk.column + r] = scale;
    }
    if (!here) continue;
    if (!chunk.is_value) {
      rotate_head<P, N>(x, angles, layout, lane, 1);
      store_head<P, N>(to + int64_t{h} * layout.dim, x, layout, lane);
    }
    if (cached) store_head<P, N>(cached + int64_t{h} * layout.dim, x, layout, lane);
  }
}

void forward(Context& context, Tensor q, Tensor k, Tensor rstd, Tensor qkv, Tensor positions, Tensor cos_sin, Tensor q_norm, Tensor k_norm,
             QkvShape shape, KvWrite cache) {
  check_qkv_forward(q, k, rstd, qkv, positions, cos_sin, q_norm, k_norm, shape, cache, qkv.dtype);
  if (qkv.dim(0) == 0) return;
  bool packed = true;
  for (const Tensor& x : {q, k, qkv, cos_sin, q_norm, k_norm, cache.k, cache.v}) packed = packed && on_16_bytes(x);
  with_head_layout(qkv_forward, qkv.dtype, shape, packed, [&](auto type, auto P, auto N, const HeadLayout& layout) {
    using T = decltype(type);
    Forward<T> a;
    a.layout = layout, a.tokens = num_tokens(qkv_forward, qkv);
    a.heads = static_cast<int>(shape.num_heads), a.kv_heads = static_cast<int>(shape.num_kv_heads);
    a.q = numbers<T>(q), a.k = numbers<T>(k), a.cache_k = numbers<T>(cache.k), a.cache_v = numbers<T>(cache.v), a.rstd = numbers<float>(rstd);
    a.qkv = numbers<const T>(qkv), a.q_norm = numbers<const T>(q_norm), a.k_norm = numbers<const T>(k_norm);
    a.cos_sin = numbers<const float>(cos_sin);
    a.positions = numbers<const int32_t>(positions), a.slots = numbers<const int32_t>(cache.slots);
    a.q_stride = q.row_stride, a.k_stride = k.row_stride, a.rstd_stride = rstd.row_stride, a.qkv_stride = qkv.row_stride;
    a.cos_sin_stride = cos_sin.row_stride, a.cache_k_stride = cache.k.row_stride, a.cache_v_stride = cache.v.row_stride;
    a.eps = shape.norm_eps;
    const dim3 grid = chunk_grid(layout, shape, heads_at_once<N()>, cache.k ? 2 : 1, a.tokens);
    launch_dependent(cuda_stream(context), forward_kernel<T, P(), N()>, grid, qkv_threads, 0, 1, a);
  });
  check_launch(qkv_forward);
}

[[maybe_unused]] const bool added = qkv_forward.add({"heads", DeviceKind::cuda, forward});

}  // namespace
}  // namespace hone
