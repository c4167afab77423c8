// qkv_forward on a GPU: optional head norms, RoPE, and the write of k and v to the KV cache (as e4m3 if it has scales).
//
// Use       every dtype, alignment and head dimension up to 256 elements (more with aligned 16-byte items).
// Tile      one or two adjacent heads of one kind (q, k, v) by as many tokens as a block has lane groups. Grid: head
//           chunks x token tiles.
// Roles     256 threads in groups of 1 to 32 lanes; a group computes a token's heads (layout: qkv.cuh).
// Pipeline  none: a group loads all its heads and angles before it uses them.
// Smem      none.
// Numerics  f32, rounded once per output. Squares of a head: items in order, then a butterfly over its lanes.
// PDL       triggers dependents, then waits, both at the start.
// Limits    fewer than 524,288 tokens.
#include "kernels/cuda/pdl.cuh"
#include "kernels/quant/quant_format.cuh"
#include "kernels/rope/qkv.cuh"
#include "kernels/rope/qkv_args.h"

namespace hone {
namespace {

template <class T>
struct Forward {
  HeadLayout layout;
  int tokens, heads, kv_heads;
  T *q, *k;
  void *cache_k, *cache_v;  // T, or e4m3 if there are scales
  float *rstd, *k_scale, *v_scale;
  const T *qkv, *q_norm, *k_norm;
  const float* cos_sin;
  const int32_t *positions, *slots;
  int64_t q_stride, k_stride, rstd_stride, qkv_stride, cos_sin_stride, cache_k_stride, cache_v_stride, k_scale_stride,
      v_scale_stride;
  float eps, norm_offset;
};

template <int P, int N>
__device__ void scale_head(HeadPart<P, N>& x, float scale, const HeadPart<P, N>& weight, float offset) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < P; ++i) {
      x[n][0][i] *= scale * (weight[n][0][i] + offset);
      x[n][1][i] *= scale * (weight[n][1][i] + offset);
    }
}

// Bits of a head's largest magnitude, on all of its lanes; all lanes of the warp call it.
template <int P, int N>
__device__ uint32_t largest_of(const HeadPart<P, N>& x, const HeadLayout& layout) {
  uint32_t most = 0;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int side = 0; side < 2; ++side)
#pragma unroll
      for (int i = 0; i < P; ++i) most = max(most, __float_as_uint(x[n][side][i]) & 0x7fffffffu);
  for (int lanes = layout.lanes / 2; lanes > 0; lanes /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, lanes));
  return most;
}

template <int P>
__device__ void encode_item(uint8_t* to, const float (&from)[P], float scale, bool packed) {
  Pack<uint8_t, P> out;
#pragma unroll
  for (int i = 0; i < P; ++i) out.value[i] = encode_scaled<Fp8Pairs>(from[i], scale);
  if (packed) {
    *reinterpret_cast<Pack<uint8_t, P>*>(to) = out;
  } else {
#pragma unroll
    for (int i = 0; i < P; ++i) to[i] = out.value[i];
  }
}
template <int P, int N>
__device__ void encode_head(uint8_t* to, const HeadPart<P, N>& from, float scale, const HeadLayout& layout, int lane) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int item = lane + n * layout.lanes;
    const StoredItem<P> stored(from[n], layout, layout.is_pair(item));
    uint8_t* const at = to + layout.element<P>(item);
    if (item < layout.items) encode_item<P>(at, stored.first, scale, layout.packed);
    if (layout.is_pair(item)) encode_item<P>(at + layout.second<P>(), stored.second, scale, layout.packed);
  }
}

// A block computes a chunk of adjacent heads of one kind (q, k, then v if there is a cache), for one token per lane
// group.
template <class T, int P, int N>
__global__ void __launch_bounds__(qkv_threads) forward_kernel(const Forward<T> a) {
  constexpr int R = heads_at_once<N>;
  hopper::griddep_launch_dependents();
  hopper::griddep_wait();
  const HeadLayout& layout = a.layout;
  const HeadChunk chunk(a.heads, a.kv_heads, R);
  const int lane = layout.lane(), token = static_cast<int>(blockIdx.y) * layout.groups() + layout.group();
  const bool inside = token < a.tokens, turns = inside && !chunk.is_value && layout.half > 0;
  const int64_t t = inside ? token : 0, position = turns ? a.positions[t] : 0;
  const T* const from = a.qkv + t * a.qkv_stride + int64_t{chunk.column} * layout.dim;
  // Load all heads and angles.
  StoredPart<T, P, N> stored[R];
#pragma unroll
  for (int r = 0; r < R; ++r)
    stored[r] = load_head<P, N>(from + r * layout.dim, layout, lane, inside && r < chunk.count);
  const auto angles = load_angles<P, N>(a.cos_sin + position * a.cos_sin_stride, layout, lane, turns);
  T* to = chunk.is_query ? a.q + t * a.q_stride : a.k + t * a.k_stride;
  const bool stores = a.cache_k && !chunk.is_query;
  const int64_t slot = stores && inside ? a.slots[t] : 0,
                cached = slot * (chunk.is_value ? a.cache_v_stride : a.cache_k_stride);
  void* const cache = chunk.is_value ? a.cache_v : a.cache_k;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const bool here = inside && r < chunk.count;
    const int h = chunk.first + r;
    HeadPart<P, N> x;
    convert<P, N>(x, stored[r], layout, lane);
    // Head norm.
    if (a.q_norm && !chunk.is_value) {
      float squares = 0;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < P; ++i) squares = fmaf(x[n][0][i], x[n][0][i], fmaf(x[n][1][i], x[n][1][i], squares));
      const float scale = 1 / sqrtf(head_sum(squares, layout.lanes) / static_cast<float>(layout.dim) + a.eps);
      HeadPart<P, N> weight;
      const auto stored_weight = load_head<P, N>(chunk.is_query ? a.q_norm : a.k_norm, layout, lane, true);
      convert<P, N>(weight, stored_weight, layout, lane);
      scale_head<P, N>(x, scale, weight, a.norm_offset);
      if (a.rstd && lane == 0 && here) a.rstd[t * a.rstd_stride + chunk.column + r] = scale;
    }
    // RoPE.
    if (!chunk.is_value) rotate_head<P, N>(x, angles, layout, lane, 1);
    const uint32_t most = stores && a.k_scale ? largest_of<P, N>(x, layout) : 0;
    if (!here) continue;
    // Store q or k, and k or v to the cache.
    if (!chunk.is_value) store_head<P, N>(to + int64_t{h} * layout.dim, x, layout, lane);
    if (!stores) continue;
    const int64_t at = cached + int64_t{h} * layout.dim;
    if (a.k_scale) {
      const float scale = scale_of<Fp8Pairs>(most);
      encode_head<P, N>(static_cast<uint8_t*>(cache) + at, x, scale, layout, lane);
      if (lane == 0)
        (chunk.is_value ? a.v_scale + slot * a.v_scale_stride : a.k_scale + slot * a.k_scale_stride)[h] = scale;
    } else {
      store_head<P, N>(static_cast<T*>(cache) + at, x, layout, lane);
    }
  }
}

void forward(Context& context, const QkvForward& args) {
  check_qkv_forward(args, args.qkv.dtype);
  if (args.qkv.dim(0) == 0) return;
  bool packed = true;
  for (const Tensor& x : {args.q, args.k, args.qkv, args.cos_sin, args.q_norm, args.k_norm, args.cache.k, args.cache.v})
    packed = packed && on_16_bytes(x);
  with_head_layout(
      qkv_forward, args.qkv.dtype, args.shape, packed, [&](auto type, auto P, auto N, const HeadLayout& layout) {
        using T = decltype(type);
        Forward<T> a;
        a.layout = layout;
        a.tokens = num_tokens(qkv_forward, args.qkv);
        a.heads = static_cast<int>(args.shape.num_heads);
        a.kv_heads = static_cast<int>(args.shape.num_kv_heads);
        a.q = numbers<T>(args.q);
        a.k = numbers<T>(args.k);
        a.cache_k = args.cache.k.data;
        a.cache_v = args.cache.v.data;
        a.rstd = numbers<float>(args.rstd);
        a.k_scale = numbers<float>(args.cache.k_scale);
        a.v_scale = numbers<float>(args.cache.v_scale);
        a.qkv = numbers<const T>(args.qkv);
        a.q_norm = numbers<const T>(args.q_norm);
        a.k_norm = numbers<const T>(args.k_norm);
        a.cos_sin = numbers<const float>(args.cos_sin);
        a.positions = numbers<const int32_t>(args.positions);
        a.slots = numbers<const int32_t>(args.cache.slots);
        a.q_stride = args.q.row_stride;
        a.k_stride = args.k.row_stride;
        a.rstd_stride = args.rstd.row_stride;
        a.qkv_stride = args.qkv.row_stride;
        a.cos_sin_stride = args.cos_sin.row_stride;
        a.cache_k_stride = args.cache.k.row_stride;
        a.cache_v_stride = args.cache.v.row_stride;
        a.k_scale_stride = args.cache.k_scale.row_stride;
        a.v_scale_stride = args.cache.v_scale.row_stride;
        a.eps = args.shape.norm_eps;
        a.norm_offset = args.shape.norm_offset;
        const dim3 grid = chunk_grid(layout, args.shape, heads_at_once<N()>, args.cache.k ? 2 : 1, a.tokens);
        launch_pdl(cuda_stream(context), forward_kernel<T, P(), N()>, grid, qkv_threads, 0, 1, a);
      });
  check_launch(qkv_forward);
}

[[maybe_unused]] const bool added = qkv_forward.add({"heads", DeviceKind::cuda, forward});

}  // namespace
}  // namespace hone
