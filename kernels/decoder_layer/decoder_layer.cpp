// The fused ops as their steps: the CPU specification, and the GPU body for what no fused kernel supports.
#include <algorithm>

#include "kernels/decoder_layer/internal.h"
#include "kernels/elementwise/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/rmsnorm.h"

namespace hone {
namespace {

size_t bytes_of(const Tensor& x, int64_t columns) { return static_cast<size_t>(x.dim(0) * columns) * size_of(x.dtype); }
size_t norm_bytes(const Tensor& x, const RmsNormWeights& norm) { return norm.weight ? bytes_of(x, x.dim(1)) : 0; }

}  // namespace

Tensor normed(Context& context, Tensor x, const RmsNormWeights& norm) {
  if (!norm.weight) return x;
  const Tensor out = context.scratch().take(x.dtype, {x.dim(0), x.dim(1)});
  rmsnorm_forward(context, out, {}, x, norm.weight, norm.eps);
  return out;
}

void project_gated_steps(Context& context, Tensor y, Tensor x, RmsNormWeights norm, Tensor w, Tensor bias) {
  const ScratchScope scope(context);
  const Tensor gate_up = context.scratch().take(x.dtype, {x.dim(0), w.dim(0)});
  gemm_forward(context, gate_up, normed(context, x, norm), w, bias, {});
  swiglu_forward(context, y, gate_up);
}

void project_heads_steps(Context& context, Tensor x, QkvProjection to) {
  HONE_CHECK(to.cache.k && to.cache.v && to.cache.slots,
             "qkv_rope_cache: cache.k, cache.v and cache.slots must be set");
  const ScratchScope scope(context);
  const int64_t T = x.dim(0);
  const Tensor qkv = context.scratch().take(x.dtype, {T, to.qkv.w.dim(0)}),
               k = context.scratch().take(x.dtype, {T, to.shape.num_kv_heads, to.shape.head_dim});
  gemm_forward(context, qkv, normed(context, x, to.norm), to.qkv.w, to.qkv.bias, {});
  qkv_forward(context, to.q, k, {}, qkv, to.positions, to.cos_sin, to.q_norm, to.k_norm, to.shape, to.cache);
}

void gemm_norm_steps(Context& context, Tensor y, Tensor normed, Tensor x, Tensor w, Tensor bias, Tensor residual,
                     RmsNormWeights norm) {
  gemm_forward(context, y, x, w, bias, residual);
  rmsnorm_forward(context, normed, {}, y, norm.weight, norm.eps);
}

void project_between_steps(Context& context, Tensor x, Tensor mixed, GemmWeights output, GatedMlpWeights mlp,
                           QkvProjection next) {
  const ScratchScope scope(context);
  const int64_t T = x.dim(0);
  const Tensor mid = context.scratch().take(x.dtype, x.dims()),
               activated = context.scratch().take(x.dtype, {T, mlp.down.w.dim(1)}),
               normed = T > max_rows_norm_in_gemm ? context.scratch().take(x.dtype, x.dims()) : Tensor();
  const auto multiply = [&](Tensor y, Tensor from, const GemmWeights& product, Tensor residual,
                            const RmsNormWeights& after) {
    if (normed && after.weight)
      gemm_rmsnorm(context, y, normed, from, product.w, product.bias, residual, after);
    else
      gemm_forward(context, y, from, product.w, product.bias, residual);
  };
  multiply(mid, mixed, output, x, mlp.norm);
  gate_up_swiglu(context, activated, normed ? normed : mid, normed ? RmsNormWeights{} : mlp.norm, mlp.gate_up.w,
                 mlp.gate_up.bias);
  multiply(x, activated, mlp.down, mid, next.norm);
  if (!next.q) return;
  if (normed) next.norm = {};
  qkv_rope_cache(context, normed ? normed : x, next);
}

size_t project_gated_scratch(const Tensor&, const Tensor& x, const RmsNormWeights& norm, const Tensor& w,
                             const Tensor&) {
  return norm_bytes(x, norm) + bytes_of(x, w.dim(0));
}
size_t project_heads_scratch(const Tensor& x, const QkvProjection& to) {
  return norm_bytes(x, to.norm) + bytes_of(x, to.qkv.w.dim(0) + to.shape.num_kv_heads * to.shape.head_dim);
}
size_t project_between_scratch(const Tensor& x, const Tensor&, const GemmWeights&, const GatedMlpWeights& mlp,
                               const QkvProjection& next) {
  const bool by_reader = x.dim(0) <= max_rows_norm_in_gemm;
  QkvProjection to = next;
  if (!by_reader) to.norm = {};
  return bytes_of(x, x.dim(1)) * (by_reader ? 1 : 2) + bytes_of(x, mlp.down.w.dim(1)) +
         std::max(project_gated_scratch(x, x, by_reader ? mlp.norm : RmsNormWeights{}, mlp.gate_up.w, {}),
                  to.q ? project_heads_scratch(x, to) : 0);
}

[[maybe_unused]] static const bool added =
    gemm_rmsnorm.add({"specification", DeviceKind::cpu, gemm_norm_steps}) &&
    gemm_rmsnorm.add({"steps", DeviceKind::cuda, gemm_norm_steps}) &&
    decoder_layer_tail.add(
        {"specification", DeviceKind::cpu, project_between_steps, 0, nullptr, project_between_scratch}) &&
    decoder_layer_tail.add({"steps", DeviceKind::cuda, project_between_steps, 0, nullptr, project_between_scratch}) &&
    gate_up_swiglu.add({"specification", DeviceKind::cpu, project_gated_steps, 0, nullptr, project_gated_scratch}) &&
    gate_up_swiglu.add({"steps", DeviceKind::cuda, project_gated_steps, 0, nullptr, project_gated_scratch}) &&
    qkv_rope_cache.add({"specification", DeviceKind::cpu, project_heads_steps, 0, nullptr, project_heads_scratch}) &&
    qkv_rope_cache.add({"steps", DeviceKind::cuda, project_heads_steps, 0, nullptr, project_heads_scratch});

}  // namespace hone
