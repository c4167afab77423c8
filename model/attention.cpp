#include "model/attention.h"

#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/clamp.h"

namespace hone {
namespace {

// The columns of v in the output of the fused projection.
Tensor value_columns(Tensor qkv, const QkvShape& heads) {
  return qkv.columns((heads.num_heads + heads.num_kv_heads) * heads.head_dim, heads.num_kv_heads * heads.head_dim);
}

// The same as heads.
Tensor values_of(Tensor qkv, const QkvShape& heads) {
  return value_columns(qkv, heads).view({qkv.dim(0), heads.num_kv_heads, heads.head_dim});
}

KvWriteTarget kv_write(const KvView& kv, size_t kv_layer) {
  const LayerKv& layer = kv.layers[kv_layer];
  return {layer.k, layer.v, kv.groups[layer.group].slots, layer.k_scale, layer.v_scale};
}

PagedKv paged(const KvView& kv, size_t kv_layer) {
  const LayerKv& layer = kv.layers[kv_layer];
  return {.k = layer.k,
          .v = layer.v,
          .block_table = kv.groups[layer.group].block_table,
          .lengths = kv.lengths,
          .block_size = kv.block_size,
          .prefetchable = kv.prefetchable,
          .k_scale = layer.k_scale,
          .v_scale = layer.v_scale};
}

Tensor as_heads(Tensor x, const QkvShape& heads) { return x.view({x.dim(0), heads.num_heads, heads.head_dim}); }

}  // namespace

void RopeTable::allocate(Context& context) {
  bytes = Buffer(context.device(), static_cast<size_t>(num_positions * config.dim) * size_of(DType::f32));
  cos_sin = Tensor(bytes.data(), DType::f32, context.kind(), {num_positions, config.dim});
  if (context.kind() == DeviceKind::meta) return;
  std::vector<float> host(static_cast<size_t>(num_positions * config.dim));
  const Tensor view = host_view(std::span(host)).view({num_positions, config.dim});
  rope_table(view, config);
  context.copy(cos_sin, view);
}

AttentionShape SelfAttention::attention_shape(const LayerPass& pass) const {
  return {.scale = scale, .window = window, .max_length = pass.batch.max_length, .softcap = softcap};
}

KvPlace SelfAttention::kv_place() {
  return {.shape = {.num_kv_heads = heads.num_kv_heads,
                    .key_dim = heads.head_dim,
                    .value_dim = heads.head_dim,
                    .window = window},
          .kv_layer = &kv_layer};
}

Tensor SelfAttention::normed(Context& context, Tensor projected, const FullNormStats& stats) const {
  if (!full_q_norm) return projected;
  const Tensor out = context.scratch().take(projected.dtype, projected.dims());
  context.copy(out, projected);
  full_q_norm->forward(context, q_columns(out), q_columns(projected), stats.q);
  if (full_k_norm) full_k_norm->forward(context, k_columns(out), k_columns(projected), stats.k);
  return out;
}

Tensor SelfAttention::clipped(Context& context, Tensor normed) const {
  if (clip == 0) return normed;
  const Tensor out = context.scratch().take(normed.dtype, normed.dims());
  context.copy(out, normed);
  clamp_forward(context, out, clip);
  return out;
}

QkvForward SelfAttention::rotation(const LayerPass& pass, Tensor clipped, Tensor q, Tensor k, Tensor norm_rstd) const {
  return {.q = q,
          .k = k,
          .rstd = norm_rstd,
          .qkv = clipped,
          .positions = pass.batch.positions,
          .cos_sin = cos_sin(),
          .q_norm = q_norm.value,
          .k_norm = k_norm.value,
          .shape = projected_heads()};
}

void SelfAttention::forward(Context& context, const LayerPass& pass, Tensor out, Tensor x, Tensor residual,
                            Frame& frame) const {
  const DType dtype = x.dtype;
  const int64_t T = x.dim(0), H = heads.num_heads, Hk = heads.num_kv_heads, d = heads.head_dim;
  const Tensor projected = frame.save(dtype, {T, qkv.num_outputs()});
  const Tensor q = frame.save_cheap(dtype, {T, H, d});
  const bool lent = shared && !pass.kv;
  HONE_CHECK(!lent || shared->k, "attention: the pass lends no memory to layers that share keys and values");
  Tensor k;
  if (lent)
    k = shared->k;
  else if (!reads())
    k = frame.save_cheap(dtype, {T, Hk, d});
  const Tensor norm_rstd =
      q_norm.value ? frame.save_for_backward(DType::f32, {T, H + projected_heads().num_kv_heads}) : Tensor();
  FullNormStats full;
  if (full_q_norm) full.q = full_q_norm->save(frame, T);
  if (full_k_norm) full.k = full_k_norm->save(frame, T);
  const Tensor mixed = frame.save(dtype, {T, H * d});
  const Tensor lse = frame.save_for_backward(DType::f32, {T, H});

  qkv.forward(context, projected, x);
  const Tensor ready = clipped(context, normed(context, projected, full));
  QkvForward rotate = rotation(pass, ready, q, reads() ? Tensor() : k, norm_rstd);
  if (pass.kv && !reads()) rotate.cache = kv_write(*pass.kv, kv_layer);
  qkv_forward(context, rotate);
  if (lent && !reads()) cast(context, shared->v, values_of(ready, heads));
  if (pass.kv)
    attention_from_cache(context, pass, mixed, q);
  else
    attention_forward(context, {.out = as_heads(mixed, heads),
                                .lse = lse,
                                .q = q,
                                .k = k,
                                .v = shared ? shared->v : values_of(ready, heads),
                                .offsets = pass.batch.offsets,
                                .shape = attention_shape(pass),
                                .sinks = sinks.value});
  output.forward(context, out, mixed, residual);
}

const SelfAttention* SelfAttention::fused_attention(const LayerPass& pass) const {
  const bool plain = qkv.gemm() && output.gemm() && !full_q_norm && clip == 0 && heads.norm_offset == 0 && !reads();
  return plain && pass.kv && pass.kv->layers[kv_layer].k.dtype == qkv.weight.value.dtype ? this : nullptr;
}

QkvProjection SelfAttention::qkv_projection(const LayerPass& pass, Tensor q, const RmsNormWeights& before) const {
  return {q,
          before,
          *qkv.gemm(),
          pass.batch.positions,
          cos_sin(),
          q_norm.value,
          k_norm.value,
          heads,
          kv_write(*pass.kv, kv_layer)};
}

void SelfAttention::attention_from_cache(Context& context, const LayerPass& pass, Tensor mixed, Tensor q) const {
  attention_paged(context, {.out = as_heads(mixed, heads),
                            .q = q,
                            .cache = paged(*pass.kv, kv_layer),
                            .offsets = pass.batch.offsets,
                            .shape = attention_shape(pass),
                            .sinks = sinks.value});
}

void SelfAttention::backward(Context& context, const LayerPass& pass, Tensor dx, Tensor dout, Tensor x,
                             Saved& saved) const {
  const ScratchScope scope(context);
  const auto like = [&](Tensor t) { return context.scratch().take(t.dtype, t.dims()); };
  const Tensor projected = saved.next();
  Tensor q = saved.next(), k = shared ? shared->k : saved.next();
  const Tensor norm_rstd = q_norm.value ? saved.next() : Tensor();
  FullNormStats full;
  if (full_q_norm) full.q = full_q_norm->restore(saved);
  if (full_k_norm) full.k = full_k_norm->restore(saved);
  const Tensor mixed = saved.next(), lse = saved.next();
  // The projection before and after the clip, for what is recomputed: q, k and the clip's gradient.
  const Tensor before_clip = !q || clip > 0 ? normed(context, projected, full) : projected,
               ready = clipped(context, before_clip);
  if (!q) {
    q = context.scratch().take(projected.dtype, {x.dim(0), heads.num_heads, heads.head_dim});
    if (!shared) k = context.scratch().take(projected.dtype, {x.dim(0), heads.num_kv_heads, heads.head_dim});
    qkv_forward(context, rotation(pass, ready, q, reads() ? Tensor() : k, norm_rstd));
  }
  const Tensor dmixed = like(mixed), dq = like(q), dprojected = like(projected);
  const bool first_sum = reads() && sharing == Sharing::last_reader;
  const Tensor dk = first_sum ? shared->dk : like(k);
  Tensor dv;
  if (!shared)
    dv = values_of(dprojected, heads);
  else
    dv = first_sum ? shared->dv : like(k);
  output.backward(context, dmixed, dout, mixed);
  attention_backward(context, {.dq = dq,
                               .dk = dk,
                               .dv = dv,
                               .dout = as_heads(dmixed, heads),
                               .out = as_heads(mixed, heads),
                               .lse = lse,
                               .q = q,
                               .k = k,
                               .v = shared ? shared->v : values_of(ready, heads),
                               .offsets = pass.batch.offsets,
                               .shape = attention_shape(pass),
                               .sinks = sinks.value,
                               .dsinks = sinks.grad});
  if (shared && !first_sum) join_gradients(context, dk, dv);
  const Tensor dnormed = full_q_norm ? like(projected) : dprojected;
  if (shared && !reads()) cast(context, values_of(dprojected, heads), dv);
  qkv_backward(context, {.dqkv = dnormed,
                         .dq_norm = q_norm.grad,
                         .dk_norm = k_norm.grad,
                         .dq = dq,
                         .dk = reads() ? Tensor() : dk,
                         .rstd = norm_rstd,
                         .qkv = ready,
                         .positions = pass.batch.positions,
                         .cos_sin = cos_sin(),
                         .q_norm = q_norm.value,
                         .k_norm = k_norm.value,
                         .shape = projected_heads()});
  if (clip > 0) {
    const int64_t queries_and_keys = dprojected.dim(1) - value_columns(dprojected, projected_heads()).dim(1);
    clamp_backward(context, dnormed.columns(0, queries_and_keys), before_clip.columns(0, queries_and_keys), clip);
    if (!reads()) clamp_backward(context, value_columns(dprojected, heads), value_columns(projected, heads), clip);
  }
  if (full_q_norm)
    full_q_norm->backward(context, q_columns(dprojected), q_columns(dnormed), q_columns(projected), full.q, false);
  if (full_k_norm)
    full_k_norm->backward(context, k_columns(dprojected), k_columns(dnormed), k_columns(projected), full.k, false);
  qkv.backward(context, dx, dprojected, x);
}

// Readers run before the owner, last layer first.
void SelfAttention::join_gradients(Context& context, Tensor dk, Tensor dv) const {
  if (reads()) {
    add_into(context, shared->dk, dk);
    add_into(context, shared->dv, dv);
  } else {
    add_into(context, dk, shared->dk);
    add_into(context, dv, shared->dv);
  }
}

Tensor SelfAttention::inner_activation(Saved& saved) const {
  for (int i = 0; i < (shared ? 2 : 3); ++i) saved.next();  // the projection, q, k
  if (q_norm.value) saved.next();
  if (full_q_norm) full_q_norm->restore(saved);
  if (full_k_norm) full_k_norm->restore(saved);
  return saved.next();
}

void SelfAttention::add_to(ModuleList& list) {
  list.add(qkv);
  list.add(q_norm);
  list.add(k_norm);
  list.add(sinks);
  if (full_q_norm) full_q_norm->add_to(list);
  if (full_k_norm) full_k_norm->add_to(list);
  list.add(output);
}

}  // namespace hone
