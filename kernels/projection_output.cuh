#pragma once
// The checks and the outputs of the projections that Hopper's bodies share. .cu files alone include it.
#include "kernels/check_shape.h"
#include "kernels/gemm_output.cuh"
#include "kernels/projection.h"
#include "kernels/tensor_map.cuh"

namespace hone {

// Whether the kernels here take the matrix and the norm before it.
inline bool fuses(const Tensor& x, const RowNorm& norm, const Product& product) {
  const auto vector = [](const Tensor& v) { return !v || (v.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0); };
  return maps(x) && maps(product.w) && vector(norm.weight) && vector(product.bias) && product.w.dim(1) > 0 && product.w.dim(1) % 8 == 0;
}
inline bool fuses_gated(const Tensor& y, const Tensor& x, const RowNorm& norm, const Product& product) {
  return fuses(x, norm, product) && maps(y) && product.w.dim(0) % 16 == 0;
}
inline bool fuses_heads(const Tensor& x, const Heads& to) {
  const int64_t dim = to.shape.head_dim;
  return fuses(x, to.norm, to.qkv) && !to.q_norm && (dim == 64 || dim == 128) && to.shape.rotary_dim == dim && to.cos_sin.row_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(to.cos_sin.data) % 16 == 0 && maps(to.q) && maps(to.cache.k) && maps(to.cache.v);
}

inline void check_product(const OpBase& op, const Tensor& x, const RowNorm& norm, const Product& product, int64_t N) {
  const int64_t K = product.w.dim(1);
  check_shape(op, "x", x, {x.dim(0), K}, DType::bf16);
  check_shape(op, "w", product.w, {N, K}, DType::bf16);
  check_optional(op, "bias", product.bias, {N}, DType::bf16);
  check_optional(op, "norm", norm.weight, {K}, DType::bf16);
}
inline GemmGated gated_output(const OpBase& op, const Tensor& y, const Tensor& x, const RowNorm& norm, const Product& product) {
  const int64_t F = product.w.dim(0) / 2;
  check_product(op, x, norm, product, 2 * F);
  check_shape(op, "y", y, {x.dim(0), F}, DType::bf16);
  return {numbers<__nv_bfloat16>(y), numbers<const __nv_bfloat16>(product.bias), y.row_stride, static_cast<int>(F)};
}
inline GemmHeads heads_output(const OpBase& op, const Tensor& x, const Heads& to) {
  const QkvShape& shape = to.shape;
  const KvWrite& cache = to.cache;
  const int64_t M = x.dim(0);
  check_product(op, x, to.norm, to.qkv, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim);
  check_shape(op, "q", to.q, {M, shape.num_heads, shape.head_dim}, DType::bf16);
  check_shape(op, "positions", to.positions, {M}, DType::i32);
  check_shape(op, "cos_sin", to.cos_sin, {to.cos_sin.dim(0), shape.rotary_dim});
  check_shape(op, "cache.k", cache.k, {cache.k.dim(0), shape.num_kv_heads, shape.head_dim}, DType::bf16);
  check_shape(op, "cache.v", cache.v, {cache.k.dim(0), shape.num_kv_heads, shape.head_dim}, DType::bf16);
  check_shape(op, "cache.slots", cache.slots, {M}, DType::i32);
  GemmHeads out{};
  out.q = numbers<__nv_bfloat16>(to.q), out.k = numbers<__nv_bfloat16>(cache.k), out.v = numbers<__nv_bfloat16>(cache.v);
  out.bias = numbers<const __nv_bfloat16>(to.qkv.bias), out.cos_sin = numbers<const float>(to.cos_sin);
  out.positions = numbers<const int32_t>(to.positions), out.slots = numbers<const int32_t>(cache.slots);
  out.q_stride = to.q.row_stride, out.k_stride = cache.k.row_stride, out.v_stride = cache.v.row_stride;
  out.cos_sin_stride = to.cos_sin.row_stride;
  out.heads = static_cast<int>(shape.num_heads), out.kv_heads = static_cast<int>(shape.num_kv_heads);
  out.dim = static_cast<int>(shape.head_dim);
  return out;
}

}  // namespace hone
