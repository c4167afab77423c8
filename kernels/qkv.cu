#include "kernels/qkv.cuh"
#include "kernels/qkv_args.h"

namespace hone {
namespace {

template <class T>
struct Forward {
  HeadLayout layout;
  int heads, kv_heads;
  uint32_t rows, heads_per_token;  // rows: (token, head) pairs; v heads among them only where there is a cache
  T *q, *k, *cache_k, *cache_v;
  float* rstd;
  const T *qkv, *q_norm, *k_norm;
  const float* cos_sin;
  const int32_t *positions, *slots;
  int64_t q_stride, k_stride, rstd_stride, qkv_stride, cos_sin_stride, cache_k_stride, cache_v_stride;
  float eps;
};

template <class T, int P, int N>
__global__ void __launch_bounds__(qkv_threads) forward_kernel(const Forward<T> a) {
  const HeadLayout& layout = a.layout;
  const int lane = static_cast<int>(threadIdx.x) % layout.lanes;
  const uint32_t row = blockIdx.x * static_cast<uint32_t>(qkv_threads / layout.lanes) + threadIdx.x / static_cast<uint32_t>(layout.lanes);
  const bool inside = row < a.rows;
  const int64_t t = inside ? row / a.heads_per_token : 0;
  const int h = inside ? static_cast<int>(row % a.heads_per_token) : 0, kv_h = h < a.heads ? 0 : (h - a.heads) % a.kv_heads;
  const bool is_query = h < a.heads, is_value = h >= a.heads + a.kv_heads;
  const bool turns = inside && !is_value && layout.half > 0;
  const int64_t position = turns ? a.positions[t] : 0;
  const auto stored = load_head<P, N>(a.qkv + t * a.qkv_stride + int64_t{h} * layout.dim, layout, lane, inside);
  const auto angles = load_angles<P, N>(a.cos_sin + position * a.cos_sin_stride, layout, lane, turns);
  HeadPart<P, N> x;
  convert<P, N>(x, stored);
  if (a.q_norm) {
    float squares = 0;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < P; ++i) squares = fmaf(x[n][0][i], x[n][0][i], fmaf(x[n][1][i], x[n][1][i], squares));
    const float scale = 1 / sqrtf(head_sum(squares, layout.lanes) / static_cast<float>(layout.dim) + a.eps);
    if (inside && !is_value) {
      HeadPart<P, N> weight;
      convert<P, N>(weight, load_head<P, N>(is_query ? a.q_norm : a.k_norm, layout, lane, true));
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < P; ++i) x[n][0][i] *= scale * weight[n][0][i], x[n][1][i] *= scale * weight[n][1][i];
      if (a.rstd && lane == 0) a.rstd[t * a.rstd_stride + h] = scale;
    }
  }
  if (!inside) return;
  if (!is_value) {
    rotate_head<P, N>(x, angles, layout, lane, 1);
    store_head<P, N>(is_query ? a.q + t * a.q_stride + int64_t{h} * layout.dim : a.k + t * a.k_stride + int64_t{kv_h} * layout.dim, x, layout, lane);
  }
  if (!is_query && a.cache_k)
    store_head<P, N>((is_value ? a.cache_v + a.slots[t] * a.cache_v_stride : a.cache_k + a.slots[t] * a.cache_k_stride) + int64_t{kv_h} * layout.dim,
                     x, layout, lane);
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
    a.layout = layout, a.heads = static_cast<int>(shape.num_heads), a.kv_heads = static_cast<int>(shape.num_kv_heads);
    a.heads_per_token = static_cast<uint32_t>(shape.num_heads + (cache.k ? 2 : 1) * shape.num_kv_heads);
    a.rows = num_rows(qkv_forward, qkv.dim(0) * a.heads_per_token);
    a.q = numbers<T>(q), a.k = numbers<T>(k), a.cache_k = numbers<T>(cache.k), a.cache_v = numbers<T>(cache.v), a.rstd = numbers<float>(rstd);
    a.qkv = numbers<const T>(qkv), a.q_norm = numbers<const T>(q_norm), a.k_norm = numbers<const T>(k_norm);
    a.cos_sin = numbers<const float>(cos_sin);
    a.positions = numbers<const int32_t>(positions), a.slots = numbers<const int32_t>(cache.slots);
    a.q_stride = q.row_stride, a.k_stride = k.row_stride, a.rstd_stride = rstd.row_stride, a.qkv_stride = qkv.row_stride;
    a.cos_sin_stride = cos_sin.row_stride, a.cache_k_stride = cache.k.row_stride, a.cache_v_stride = cache.v.row_stride;
    a.eps = shape.norm_eps;
    const auto heads_per_block = static_cast<unsigned>(qkv_threads / layout.lanes);
    const unsigned blocks = (a.rows - 1) / heads_per_block + 1;
    forward_kernel<T, P(), N()><<<blocks, qkv_threads, 0, cuda_stream(context)>>>(a);
  });
  check_launch(qkv_forward);
}

[[maybe_unused]] const bool added = qkv_forward.add({"heads", DeviceKind::cuda, forward});

}  // namespace
}  // namespace hone
