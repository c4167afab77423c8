// The fused ops as their steps: the CPU specification, and the GPU body for what no fused kernel supports.
#include <algorithm>

#include "kernels/decoder_layer/internal.h"
#include "kernels/decoder_layer/rmsnorm_gemm.h"
#include "kernels/elementwise/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/scratch_bytes.h"

namespace hone {
namespace {

// The scratch memory of a tensor with the rows and the dtype of x.
size_t bytes_of(const Tensor& x, int64_t columns) {
  return scratch_bytes(static_cast<size_t>(x.dim(0) * columns) * size_of(x.dtype));
}
size_t norm_bytes(const Tensor& x, const RmsNormWeights& norm) { return norm.weight ? bytes_of(x, x.dim(1)) : 0; }

}  // namespace

Tensor normed(Context& context, Tensor x, const RmsNormWeights& norm) {
  if (!norm.weight) return x;
  const Tensor out = context.scratch().take(x.dtype, {x.dim(0), x.dim(1)});
  rmsnorm_forward(context, out, {}, x, norm.weight, norm.eps, 0);
  return out;
}

void gate_up_swiglu_steps(Context& context, const GateUpSwiglu& args) {
  const ScratchScope scope(context);
  const Tensor gate_up = context.scratch().take(args.x.dtype, {args.x.dim(0), args.gate_up.w.dim(0)});
  gemm_forward(context,
               {.y = gate_up, .x = normed(context, args.x, args.norm), .w = args.gate_up.w, .bias = args.gate_up.bias});
  glu_forward(context, args.y, gate_up, Activation::silu);
}

void check_kv_write(const OpBase& op, const QkvProjection& to) {
  HONE_CHECK(to.cache.k && to.cache.v && to.cache.slots, op.name(), ": cache.k, cache.v and cache.slots must be set");
}

void qkv_rope_cache_from(Context& context, const QkvProjection& to, Tensor qkv) {
  const ScratchScope scope(context);
  const Tensor k = context.scratch().take(qkv.dtype, {qkv.dim(0), to.shape.num_kv_heads, to.shape.head_dim});
  qkv_forward(context, {.q = to.q,
                        .k = k,
                        .qkv = qkv,
                        .positions = to.positions,
                        .cos_sin = to.cos_sin,
                        .q_norm = to.q_norm,
                        .k_norm = to.k_norm,
                        .shape = to.shape,
                        .cache = to.cache});
}

void qkv_rope_cache_steps(Context& context, const QkvRopeCache& args) {
  check_kv_write(qkv_rope_cache, args.to);
  const ScratchScope scope(context);
  const Tensor qkv = context.scratch().take(args.x.dtype, {args.x.dim(0), args.to.qkv.w.dim(0)});
  if (args.to.norm.weight && args.x.dim(0) <= max_rows_norm_in_gemm) {
    const Tensor normed = context.scratch().take(args.x.dtype, args.x.dims());
    rmsnorm_gemm(context, {.y = qkv, .normed = normed, .x = args.x, .norm = args.to.norm, .product = args.to.qkv});
  } else {
    gemm_forward(context,
                 {.y = qkv, .x = normed(context, args.x, args.to.norm), .w = args.to.qkv.w, .bias = args.to.qkv.bias});
  }
  qkv_rope_cache_from(context, args.to, qkv);
}

GemmForward gemm_of(const GemmRmsnorm& args) {
  return {.y = args.y, .x = args.x, .w = args.product.w, .bias = args.product.bias, .residual = args.residual};
}
void gemm_rmsnorm_steps(Context& context, const GemmRmsnorm& args) {
  gemm_forward(context, gemm_of(args));
  rmsnorm_forward(context, args.normed, {}, args.y, args.norm.weight, args.norm.eps, 0);
}

void decoder_layer_tail_steps(Context& context, const DecoderLayerTail& args) {
  const ScratchScope scope(context);
  const int64_t T = args.x.dim(0);
  const Tensor mid = context.scratch().take(args.x.dtype, args.x.dims()),
               activated = context.scratch().take(args.x.dtype, {T, args.mlp.down.w.dim(1)}),
               normed = T > max_rows_norm_in_gemm ? context.scratch().take(args.x.dtype, args.x.dims()) : Tensor();
  const auto multiply = [&](Tensor y, Tensor from, const GemmWeights& product, Tensor residual,
                            const RmsNormWeights& after) {
    if (normed && after.weight)
      gemm_rmsnorm(context,
                   {.y = y, .normed = normed, .x = from, .product = product, .residual = residual, .norm = after});
    else
      gemm_forward(context, {.y = y, .x = from, .w = product.w, .bias = product.bias, .residual = residual});
  };
  multiply(mid, args.mixed, args.output, args.x, args.mlp.norm);
  gate_up_swiglu(context, {.y = activated,
                           .x = normed ? normed : mid,
                           .norm = normed ? RmsNormWeights{} : args.mlp.norm,
                           .gate_up = args.mlp.gate_up});
  multiply(args.x, activated, args.mlp.down, mid, args.next.norm);
  if (!args.next.q) return;
  QkvRopeCache last{.x = normed ? normed : args.x, .to = args.next};
  if (normed) last.to.norm = {};
  qkv_rope_cache(context, last);
}

size_t gate_up_swiglu_scratch(const GateUpSwiglu& args) {
  return norm_bytes(args.x, args.norm) + bytes_of(args.x, args.gate_up.w.dim(0));
}
size_t qkv_rope_cache_scratch(const QkvRopeCache& args) {
  return norm_bytes(args.x, args.to.norm) + bytes_of(args.x, args.to.qkv.w.dim(0)) +
         bytes_of(args.x, args.to.shape.num_kv_heads * args.to.shape.head_dim);
}
size_t decoder_layer_tail_scratch(const DecoderLayerTail& args) {
  const Tensor& x = args.x;
  const bool by_reader = x.dim(0) <= max_rows_norm_in_gemm;
  GateUpSwiglu gate_up{.y = x, .x = x, .norm = args.mlp.norm, .gate_up = args.mlp.gate_up};
  QkvRopeCache last{.x = x, .to = args.next};
  if (!by_reader) {
    gate_up.norm = {};
    last.to.norm = {};
  }
  return bytes_of(x, x.dim(1)) * (by_reader ? 1 : 2) + bytes_of(x, args.mlp.down.w.dim(1)) +
         std::max(gate_up_swiglu_scratch(gate_up), args.next.q ? qkv_rope_cache_scratch(last) : 0);
}

namespace {

[[maybe_unused]] const bool added =
    gemm_rmsnorm.add({"specification", DeviceKind::cpu, gemm_rmsnorm_steps}) &&
    gemm_rmsnorm.add({"steps", DeviceKind::cuda, gemm_rmsnorm_steps}) &&
    decoder_layer_tail.add(
        {"specification", DeviceKind::cpu, decoder_layer_tail_steps, 0, nullptr, decoder_layer_tail_scratch}) &&
    decoder_layer_tail.add(
        {"steps", DeviceKind::cuda, decoder_layer_tail_steps, 0, nullptr, decoder_layer_tail_scratch}) &&
    gate_up_swiglu.add({"specification", DeviceKind::cpu, gate_up_swiglu_steps, 0, nullptr, gate_up_swiglu_scratch}) &&
    gate_up_swiglu.add({"steps", DeviceKind::cuda, gate_up_swiglu_steps, 0, nullptr, gate_up_swiglu_scratch}) &&
    qkv_rope_cache.add({"specification", DeviceKind::cpu, qkv_rope_cache_steps, 0, nullptr, qkv_rope_cache_scratch}) &&
    qkv_rope_cache.add({"steps", DeviceKind::cuda, qkv_rope_cache_steps, 0, nullptr, qkv_rope_cache_scratch});

}  // namespace
}  // namespace hone
