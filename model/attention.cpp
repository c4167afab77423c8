#include "model/attention.h"

#include "kernels/attention/attention.h"

namespace hone {
namespace {

// The columns of v in the output of the fused projection, as heads.
Tensor values_of(Tensor qkv, const QkvShape& heads) {
  return qkv.columns((heads.num_heads + heads.num_kv_heads) * heads.head_dim, heads.num_kv_heads * heads.head_dim)
      .view({qkv.dim(0), heads.num_kv_heads, heads.head_dim});
}

KvWriteTarget kv_write(const KvView& kv, int64_t layer) {
  const auto plane = static_cast<size_t>(layer);
  const auto scale = [plane](const std::vector<Tensor>& planes) { return planes.empty() ? Tensor() : planes[plane]; };
  return {kv.k[plane], kv.v[plane], kv.slots, scale(kv.k_scale), scale(kv.v_scale)};
}

PagedKv paged(const KvView& kv, const KvWriteTarget& write) {
  return {write.k, write.v, kv.block_table, kv.lengths, kv.block_size, kv.prefetchable, write.k_scale, write.v_scale};
}

Tensor as_heads(Tensor x, const QkvShape& heads) { return x.view({x.dim(0), heads.num_heads, heads.head_dim}); }

}  // namespace

SelfAttention::Saved SelfAttention::save(Context& context, Tape* tape, int64_t num_tokens) const {
  const DType dtype = qkv.weight.value.dtype;
  Saved kept;
  kept.qkv = hone::save(context, tape, dtype, {num_tokens, qkv.num_outputs()});
  kept.q = save_if_all(context, tape, dtype, {num_tokens, heads.num_heads, heads.head_dim});
  kept.k = save_if_all(context, tape, dtype, {num_tokens, heads.num_kv_heads, heads.head_dim});
  if (tape && q_norm.value) kept.norm_rstd = tape->push(DType::f32, {num_tokens, heads.num_heads + heads.num_kv_heads});
  kept.attn_out = hone::save(context, tape, dtype, {num_tokens, heads.num_heads * heads.head_dim});
  if (tape) kept.lse = tape->push(DType::f32, {num_tokens, heads.num_heads});
  return kept;
}

SelfAttention::Saved SelfAttention::restore(Tape& tape) const {
  Saved kept;
  kept.lse = tape.pop();
  kept.attn_out = tape.pop();
  if (q_norm.value) kept.norm_rstd = tape.pop();
  kept.k = restore_if_all(tape);
  kept.q = restore_if_all(tape);
  kept.qkv = tape.pop();
  return kept;
}

void SelfAttention::forward(Context& context, const Batch& batch, Tensor out, Tensor x, Tensor residual,
                            const Saved& kept, const KvView* kv, int64_t layer) const {
  qkv.forward(context, kept.qkv, x);
  const KvWriteTarget write = kv ? kv_write(*kv, layer) : KvWriteTarget{};
  qkv_forward(context, {.q = kept.q,
                        .k = kept.k,
                        .rstd = kept.norm_rstd,
                        .qkv = kept.qkv,
                        .positions = batch.positions,
                        .cos_sin = cos_sin,
                        .q_norm = q_norm.value,
                        .k_norm = k_norm.value,
                        .shape = heads,
                        .cache = write});
  const AttentionShape shape{scale, window, batch.max_length};
  const Tensor mixed = as_heads(kept.attn_out, heads);
  if (kv)
    attention_paged(context,
                    {.out = mixed, .q = kept.q, .cache = paged(*kv, write), .offsets = batch.offsets, .shape = shape});
  else
    attention_forward(context, {.out = mixed,
                                .lse = kept.lse,
                                .q = kept.q,
                                .k = kept.k,
                                .v = values_of(kept.qkv, heads),
                                .offsets = batch.offsets,
                                .shape = shape});
  output.forward(context, out, kept.attn_out, residual);
}

QkvProjection SelfAttention::qkv_projection(const Batch& batch, Tensor q, const RmsNorm& before, const KvView& kv,
                                            int64_t layer) const {
  return {q,     before.row_norm(),  qkv.product(), batch.positions, cos_sin, q_norm.value, k_norm.value,
          heads, kv_write(kv, layer)};
}

void SelfAttention::attention_from_cache(Context& context, const Batch& batch, Tensor mixed, Tensor q, const KvView& kv,
                                         int64_t layer) const {
  attention_paged(context, {.out = as_heads(mixed, heads),
                            .q = q,
                            .cache = paged(kv, kv_write(kv, layer)),
                            .offsets = batch.offsets,
                            .shape = {scale, window, batch.max_length}});
}

void SelfAttention::backward(Context& context, const Batch& batch, Tensor dx, Tensor dout, Tensor x, Saved kept) const {
  ScratchScope scope(context);
  if (!kept.q) {
    kept.q = context.scratch().take(kept.qkv.dtype, {x.dim(0), heads.num_heads, heads.head_dim});
    kept.k = context.scratch().take(kept.qkv.dtype, {x.dim(0), heads.num_kv_heads, heads.head_dim});
    qkv_forward(context, {.q = kept.q,
                          .k = kept.k,
                          .rstd = kept.norm_rstd,
                          .qkv = kept.qkv,
                          .positions = batch.positions,
                          .cos_sin = cos_sin,
                          .q_norm = q_norm.value,
                          .k_norm = k_norm.value,
                          .shape = heads});
  }
  const auto like = [&](Tensor t) { return context.scratch().take(t.dtype, t.dims()); };
  const Tensor dmixed = like(kept.attn_out), dq = like(kept.q), dk = like(kept.k), dqkv = like(kept.qkv);
  output.backward(context, dmixed, dout, kept.attn_out);
  attention_backward(context, {.dq = dq,
                               .dk = dk,
                               .dv = values_of(dqkv, heads),
                               .dout = as_heads(dmixed, heads),
                               .out = as_heads(kept.attn_out, heads),
                               .lse = kept.lse,
                               .q = kept.q,
                               .k = kept.k,
                               .v = values_of(kept.qkv, heads),
                               .offsets = batch.offsets,
                               .shape = {scale, window, batch.max_length}});
  qkv_backward(context, {.dqkv = dqkv,
                         .dq_norm = q_norm.grad,
                         .dk_norm = k_norm.grad,
                         .dq = dq,
                         .dk = dk,
                         .rstd = kept.norm_rstd,
                         .qkv = kept.qkv,
                         .positions = batch.positions,
                         .cos_sin = cos_sin,
                         .q_norm = q_norm.value,
                         .k_norm = k_norm.value,
                         .shape = heads});
  qkv.backward(context, dx, dqkv, x);
}

void SelfAttention::add_params(std::vector<Param*>& out) {
  qkv.add_params(out);
  if (!q_norm.shape.empty()) out.insert(out.end(), {&q_norm, &k_norm});
  output.add_params(out);
}

}  // namespace hone
