#pragma once
// Epilogues (output.cuh) and argument checks that the CUDA bodies of the fused projections share. Only .cu and .cuh
// files include it.
#include "kernels/check_shape.h"
#include "kernels/decoder_layer/decoder_layer.h"
#include "kernels/elementwise/activation.cuh"
#include "kernels/gemm/mma/output.cuh"
#include "kernels/rope/qkv.cuh"

namespace hone {

// Bias of the fused epilogues: total + bias is rounded to bf16 as the separate GEMM rounds it.
template <int count>
struct PairBias {
  float first[count] = {}, second[count] = {};
  __device__ static PairBias fetch(const __nv_bfloat16* bias, int2 n, int r) {
    PairBias out;
    if (bias) {
      load_vec(out.first, bias + n.x + r);
      load_vec(out.second, bias + n.y + r);
    }
    return out;
  }
};
__device__ inline float rounded_sum(float total, float bias, bool has_bias) {
  return __bfloat162float(__float2bfloat16_rn(has_bias ? total + bias : total));
}

// y [M, F] = silu(gate) * up. A tile pairs a range of gate rows with its range of up rows. F is a multiple of 8.
struct SwigluEpilogue {
  static constexpr bool adjacent_ranges = false;
  __nv_bfloat16* y;
  const __nv_bfloat16* bias;
  int64_t y_stride;
  int F;

  template <int count>
  using Extra = PairBias<count>;
  template <int half>
  __host__ __device__ int tiles() const {
    return (F + half - 1) / half;
  }
  template <int half>
  __device__ int2 row_ranges(int tile) const {
    return {tile * half, F + tile * half};
  }
  template <int half, int count>
  __device__ Extra<count> fetch(int, int tile, int r) const {
    return Extra<count>::fetch(tile * half + r < F ? bias : nullptr, row_ranges<half>(tile), r);
  }
  template <int half, int count>
  __device__ void store(const float (&first)[count], const float (&second)[count], const Extra<count>& extra, int m,
                        int tile, int r) const {
    const int column = tile * half + r;
    if (column >= F) return;
    float out[count];
#pragma unroll
    for (int i = 0; i < count; ++i)
      out[i] = swiglu(rounded_sum(first[i], extra.first[i], bias), rounded_sum(second[i], extra.second[i], bias));
    store_vec(y + m * y_stride + column, out);
  }
};

// q [M, H, d], and k and v in the cache. The two halves of a head that RoPE rotates together are the pair of row
// ranges. d is a multiple of 64 and all of it is rotated.
struct QkvRopeEpilogue {
  static constexpr bool adjacent_ranges = false;
  __nv_bfloat16 *q, *k, *v;  // k and v: rows of the cache
  const __nv_bfloat16* bias;
  const float* cos_sin;
  const int32_t *positions, *slots;
  int64_t q_stride, k_stride, v_stride, cos_sin_stride;
  int heads, kv_heads, dim;

  template <int count>
  struct Extra {
    PairBias<count> bias;
    float cos[count], sin[count];
    __nv_bfloat16* to = nullptr;  // first element of the pair; nullptr past the last head
    int partner;                  // distance of the second element
    bool rotates;
  };
  template <int half>
  __host__ __device__ int tiles() const {
    return (heads + 2 * kv_heads) * (dim / (2 * half));
  }
  // The columns of a tile within its head.
  template <int half>
  struct PairColumns {
    int head, column, partner;
    bool rotates;
    __device__ PairColumns(const QkvRopeEpilogue& of, int tile) {
      const int a_head = of.dim / (2 * half), j = tile % a_head;
      head = tile / a_head;
      rotates = head < of.heads + of.kv_heads;
      column = rotates ? j * half : j * 2 * half;
      partner = rotates ? of.dim / 2 : half;
    }
  };
  template <int half>
  __device__ int2 row_ranges(int tile) const {
    const PairColumns<half> at(*this, tile);
    return {at.head * dim + at.column, at.head * dim + at.column + at.partner};
  }
  template <int half, int count>
  __device__ Extra<count> fetch(int m, int tile, int r) const {
    const PairColumns<half> at(*this, tile);
    Extra<count> out;
    if (at.head >= heads + 2 * kv_heads) return out;
    out.bias = PairBias<count>::fetch(bias, row_ranges<half>(tile), r);
    if (at.rotates) {
      const float* angles = cos_sin + positions[m] * cos_sin_stride + at.column + r;
      load_vec(out.cos, angles);
      load_vec(out.sin, angles + at.partner);
    }
    if (at.head < heads)
      out.to = q + m * q_stride + at.head * dim;
    else if (at.rotates)
      out.to = k + slots[m] * k_stride + (at.head - heads) * dim;
    else
      out.to = v + slots[m] * v_stride + (at.head - heads - kv_heads) * dim;
    out.to += at.column + r;
    out.partner = at.partner;
    out.rotates = at.rotates;
    return out;
  }
  template <int half, int count>
  __device__ void store(const float (&first)[count], const float (&second)[count], const Extra<count>& extra, int, int,
                        int) const {
    if (!extra.to) return;
    float a[count], b[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      a[i] = rounded_sum(first[i], extra.bias.first[i], bias);
      b[i] = rounded_sum(second[i], extra.bias.second[i], bias);
      if (extra.rotates) rotate(a[i], b[i], extra.cos[i], extra.sin[i]);
    }
    store_vec(extra.to, a);
    store_vec(extra.to + extra.partner, b);
  }
};

// bf16 with 16-byte aligned rows, as vector loads, cp.async and TMA need them.
inline bool has_aligned_rows(const Tensor& x) {
  return x.dtype == DType::bf16 && x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

// True if the fused kernels support the matrix and the norm before it.
inline bool fuses(const Tensor& x, const RmsNormWeights& norm, const GemmWeights& product) {
  const auto vector = [](const Tensor& v) {
    return !v || (v.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0);
  };
  return has_aligned_rows(x) && has_aligned_rows(product.w) && vector(norm.weight) && vector(product.bias) &&
         product.w.dim(1) > 0 && product.w.dim(1) % 8 == 0;
}
inline bool fuses_gated(const Tensor& y, const Tensor& x, const RmsNormWeights& norm, const GemmWeights& product) {
  return fuses(x, norm, product) && has_aligned_rows(y) && product.w.dim(0) % 16 == 0;
}
inline bool fuses_heads(const QkvRopeCache& args) {
  const QkvProjection& to = args.to;
  const int64_t dim = to.shape.head_dim;
  return fuses(args.x, to.norm, to.qkv) && !to.q_norm && (dim == 64 || dim == 128) && to.shape.rotary_dim == dim &&
         !to.shape.interleaved && to.cos_sin.row_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(to.cos_sin.data) % 16 == 0 && has_aligned_rows(to.q) &&
         has_aligned_rows(to.cache.k) && has_aligned_rows(to.cache.v);
}

inline void check_product(const OpBase& op, const Tensor& x, const RmsNormWeights& norm, const GemmWeights& product,
                          int64_t N) {
  const int64_t K = product.w.dim(1);
  check_shape(op, "x", x, {x.dim(0), K}, DType::bf16);
  check_shape(op, "w", product.w, {N, K}, DType::bf16);
  check_optional(op, "bias", product.bias, {N}, DType::bf16);
  check_optional(op, "norm", norm.weight, {K}, DType::bf16);
}
inline SwigluEpilogue gated_output(const OpBase& op, const Tensor& y, const Tensor& x, const RmsNormWeights& norm,
                                   const GemmWeights& product) {
  const int64_t F = product.w.dim(0) / 2;
  check_product(op, x, norm, product, 2 * F);
  check_shape(op, "y", y, {x.dim(0), F}, DType::bf16);
  return {numbers<__nv_bfloat16>(y), numbers<const __nv_bfloat16>(product.bias), y.row_stride, static_cast<int>(F)};
}
inline QkvRopeEpilogue heads_output(const OpBase& op, const QkvRopeCache& args) {
  const QkvProjection& to = args.to;
  const QkvShape& shape = to.shape;
  const KvWriteTarget& cache = to.cache;
  const int64_t M = args.x.dim(0);
  check_product(op, args.x, to.norm, to.qkv, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim);
  check_shape(op, "q", to.q, {M, shape.num_heads, shape.head_dim}, DType::bf16);
  check_shape(op, "positions", to.positions, {M}, DType::i32);
  check_shape(op, "cos_sin", to.cos_sin, {to.cos_sin.dim(0), shape.rotary_dim});
  check_shape(op, "cache.k", cache.k, {cache.k.dim(0), shape.num_kv_heads, shape.head_dim}, DType::bf16);
  check_shape(op, "cache.v", cache.v, {cache.k.dim(0), shape.num_kv_heads, shape.head_dim}, DType::bf16);
  check_shape(op, "cache.slots", cache.slots, {M}, DType::i32);
  QkvRopeEpilogue out{};
  out.q = numbers<__nv_bfloat16>(to.q);
  out.k = numbers<__nv_bfloat16>(cache.k);
  out.v = numbers<__nv_bfloat16>(cache.v);
  out.bias = numbers<const __nv_bfloat16>(to.qkv.bias);
  out.cos_sin = numbers<const float>(to.cos_sin);
  out.positions = numbers<const int32_t>(to.positions);
  out.slots = numbers<const int32_t>(cache.slots);
  out.q_stride = to.q.row_stride;
  out.k_stride = cache.k.row_stride;
  out.v_stride = cache.v.row_stride;
  out.cos_sin_stride = to.cos_sin.row_stride;
  out.heads = static_cast<int>(shape.num_heads);
  out.kv_heads = static_cast<int>(shape.num_kv_heads);
  out.dim = static_cast<int>(shape.head_dim);
  return out;
}

}  // namespace hone
