#include "model/attention/latent_attention.h"

#include "kernels/attention/latent/head_gemm.h"
#include "kernels/attention/latent/latent_attention.h"
#include "kernels/elementwise/cast.h"
#include "kernels/rope/latent_rows.h"

namespace hone {
namespace {

// One layer's plane of a KV view as latent rows, and their slots.
struct LatentPlane {
  Tensor rows, slots, block_table;
};
LatentPlane plane_of(const KvView& kv, size_t kv_layer, const LatentShape& heads) {
  const LayerKv& layer = kv.layers[kv_layer];
  const KvGroupView& group = kv.groups[layer.group];
  return {layer.k.view({layer.k.dim(0), heads.row()}), group.slots, group.block_table};
}

}  // namespace

AttentionShape LatentAttention::attention_shape(const LayerPass& pass) const {
  return {.scale = scale, .window = window, .max_length = pass.batch.max_length};
}

KvPlace LatentAttention::kv_place() {
  return {.shape = {.num_kv_heads = 1, .key_dim = heads.row(), .value_dim = 0, .window = window},
          .kv_layer = &kv_layer};
}

Tensor LatentAttention::key_map(Tensor weight) const {
  Tensor out(weight.data, weight.dtype, weight.device, {heads.num_heads, heads.nope_dim, heads.rank});
  out.row_stride = heads.mapped() * heads.rank;
  return out;
}

Tensor LatentAttention::value_map(Tensor weight) const {
  Tensor out(weight.data, weight.dtype, weight.device, {heads.num_heads, heads.value_dim, heads.rank});
  out.row_stride = heads.mapped() * heads.rank;
  if (weight.data)
    out.data = static_cast<char*>(weight.data) + static_cast<size_t>(heads.nope_dim * heads.rank) * size_of(out.dtype);
  return out;
}

Tensor LatentAttention::kv_weight(Context& context) const {
  if (!kv_up.lora || !kv_up.lora->enabled()) return kv_up.weight.value;
  const Tensor merged = context.scratch().take(kv_up.weight.value.dtype, kv_up.weight.value.dims());
  context.copy(merged, kv_up.weight.value);
  kv_up.lora->merge_into(context, merged);
  return merged;
}

LatentAttention::Pass LatentAttention::allocate(Frame& frame, int64_t num_tokens, DType dtype) const {
  const int64_t T = num_tokens, H = heads.num_heads;
  Pass out;
  if (q_down) {
    out.q_latent = frame.save(dtype, {T, q_down->num_outputs()});
    out.q_stats = q_norm->save(frame, T);
    out.q_normed = frame.save_cheap(dtype, {T, q_down->num_outputs()});
  }
  out.q_in = frame.save(dtype, {T, H, heads.query()});
  out.row_in = frame.save(dtype, {T, heads.row()});
  out.kv_stats = kv_norm.save(frame, T);
  out.rows = frame.save_cheap(dtype, {T, heads.row()});
  out.q = frame.save_cheap(dtype, {T, H, heads.row()});
  out.mixed = frame.save(dtype, {T, H, heads.rank});
  out.lse = frame.save_for_backward(DType::f32, {T, H});
  out.result = frame.save(dtype, {T, H, heads.value_dim});
  return out;
}

LatentAttention::Pass LatentAttention::restore(Saved& saved) const {
  Pass out;
  if (q_down) {
    out.q_latent = saved.next();
    out.q_stats = q_norm->restore(saved);
    out.q_normed = saved.next();
  }
  out.q_in = saved.next();
  out.row_in = saved.next();
  out.kv_stats = kv_norm.restore(saved);
  out.rows = saved.next();
  out.q = saved.next();
  out.mixed = saved.next();
  out.lse = saved.next();
  out.result = saved.next();
  return out;
}

void LatentAttention::make_queries_and_rows(Context& context, const LayerPass& pass, const Pass& to,
                                            Tensor weight) const {
  kv_norm.forward(context, to.rows.columns(0, heads.rank), to.row_in.columns(0, heads.rank), to.kv_stats);
  head_gemm(context, {.y = to.q, .x = to.q_in, .w = key_map(weight), .transposed = true});
  LatentRowsForward rotate{.q = to.q,
                           .rows = to.rows,
                           .q_in = to.q_in,
                           .row_in = to.row_in,
                           .positions = pass.batch.positions,
                           .cos_sin = rope->cos_sin,
                           .interleaved = interleaved};
  if (pass.kv) {
    const LatentPlane plane = plane_of(*pass.kv, kv_layer, heads);
    rotate.cache = plane.rows;
    rotate.slots = plane.slots;
  }
  latent_rows_forward(context, rotate);
}

void LatentAttention::attend(Context& context, const LayerPass& pass, const Pass& to) const {
  if (!pass.kv) {
    latent_attention_forward(context, {.out = to.mixed,
                                       .lse = to.lse,
                                       .q = to.q,
                                       .rows = to.rows,
                                       .offsets = pass.batch.offsets,
                                       .shape = attention_shape(pass)});
    return;
  }
  const LatentPlane plane = plane_of(*pass.kv, kv_layer, heads);
  latent_attention_paged(context, {.out = to.mixed,
                                   .q = to.q,
                                   .cache = {.rows = plane.rows,
                                             .block_table = plane.block_table,
                                             .lengths = pass.kv->lengths,
                                             .block_size = pass.kv->block_size},
                                   .offsets = pass.batch.offsets,
                                   .shape = attention_shape(pass)});
}

void LatentAttention::forward(Context& context, const LayerPass& pass, Tensor out, Tensor x, Tensor residual,
                              Frame& frame) const {
  const int64_t T = x.dim(0);
  const Pass to = allocate(frame, T, x.dtype);
  const ScratchScope scope(context);
  const Tensor weight = kv_weight(context);
  Tensor q_source = x;
  if (q_down) {
    q_down->forward(context, to.q_latent, x);
    q_norm->forward(context, to.q_normed, to.q_latent, to.q_stats);
    q_source = to.q_normed;
  }
  q_up.forward(context, to.q_in.view({T, heads.num_heads * heads.query()}), q_source);
  kv_down.forward(context, to.row_in, x);
  make_queries_and_rows(context, pass, to, weight);
  attend(context, pass, to);
  head_gemm(context, {.y = to.result, .x = to.mixed, .w = value_map(weight)});
  output.forward(context, out, to.result.view({T, heads.num_heads * heads.value_dim}), residual);
}

void LatentAttention::add_kv_gradient(Context& context, const Pass& of, Tensor dq, Tensor dresult) const {
  const bool adapted = kv_up.lora && kv_up.lora->enabled();
  if (!kv_up.weight.grad && !adapted) return;
  const ScratchScope scope(context);
  Tensor dweight = kv_up.weight.grad_to_add_to(context);
  if (adapted) {
    dweight = context.scratch().take(DType::f32, kv_up.weight.shape);
    context.zero(dweight);
  }
  head_gemm_weight(context, {.dw = key_map(dweight), .a = of.q_in, .b = dq});
  head_gemm_weight(context, {.dw = value_map(dweight), .a = dresult, .b = of.mixed});
  if (adapted) kv_up.lora->backward_merged(context, dweight);
}

void LatentAttention::backward(Context& context, const LayerPass& pass, Tensor dx, Tensor dout, Tensor x,
                               Saved& saved) const {
  const ScratchScope scope(context);
  const auto like = [&](Tensor t) { return context.scratch().take(t.dtype, t.dims()); };
  const int64_t T = x.dim(0), H = heads.num_heads;
  const auto flat = [T](Tensor of_heads) { return of_heads.view({T, of_heads.row_size()}); };
  Pass of = restore(saved);
  const Tensor weight = kv_weight(context);
  if (!of.q) {  // recomputed
    of.q = context.scratch().take(x.dtype, {T, H, heads.row()});
    of.rows = context.scratch().take(x.dtype, {T, heads.row()});
    LayerPass packed = pass;
    packed.kv = nullptr;
    make_queries_and_rows(context, packed, of, weight);
  }
  const Tensor dresult = like(of.result), dmixed = like(of.mixed), dq = like(of.q), drows = like(of.rows);
  output.backward(context, flat(dresult), dout, flat(of.result));
  head_gemm(context, {.y = dmixed, .x = dresult, .w = value_map(weight), .transposed = true});
  latent_attention_backward(context, {.dq = dq,
                                      .drows = drows,
                                      .dout = dmixed,
                                      .out = of.mixed,
                                      .lse = of.lse,
                                      .q = of.q,
                                      .rows = of.rows,
                                      .offsets = pass.batch.offsets,
                                      .shape = attention_shape(pass)});
  add_kv_gradient(context, of, dq, dresult);
  const Tensor dq_in = like(of.q_in), drow_in = like(of.row_in);
  head_gemm(context, {.y = dq_in, .x = dq, .w = key_map(weight)});
  latent_rows_backward(context, {.dq_in = dq_in,
                                 .drow_in = drow_in,
                                 .dq = dq,
                                 .drows = drows,
                                 .positions = pass.batch.positions,
                                 .cos_sin = rope->cos_sin,
                                 .interleaved = interleaved});
  const auto latent = [&](Tensor rows) { return rows.columns(0, heads.rank); };
  kv_norm.backward(context, latent(drow_in), latent(drows), latent(of.row_in), of.kv_stats, false);
  kv_down.backward(context, dx, drow_in, x);
  backward_queries(context, dx, flat(dq_in), x, of);
}

void LatentAttention::backward_queries(Context& context, Tensor dx, Tensor dq_in, Tensor x, const Pass& of) const {
  const ScratchScope scope(context);
  const auto like = [&](Tensor t) { return context.scratch().take(t.dtype, t.dims()); };
  const Tensor part = like(dx);
  if (!q_down) {
    q_up.backward(context, part, dq_in, x);
  } else {
    Tensor normed = of.q_normed;
    if (!normed) {
      normed = like(of.q_latent);
      q_norm->forward(context, normed, of.q_latent, of.q_stats);
    }
    const Tensor dnormed = like(normed), dlatent = like(normed);
    q_up.backward(context, dnormed, dq_in, normed);
    q_norm->backward(context, dlatent, dnormed, of.q_latent, of.q_stats, false);
    q_down->backward(context, part, dlatent, x);
  }
  add_into(context, dx, part);
}

void LatentAttention::add_to(ModuleList& list) {
  if (q_down) {
    list.add(*q_down);
    q_norm->add_to(list);
  }
  list.add(q_up);
  list.add(kv_down);
  kv_norm.add_to(list);
  list.add(kv_up);
  list.add(output);
}

}  // namespace hone
