#pragma once
// Causal grouped-query self-attention with its projections.
#include "kernels/attention/attention.h"
#include "kernels/rope/qkv.h"
#include "model/modules.h"

namespace hone {

struct SelfAttention {
  Linear qkv, output;    // qkv: rows of q, then k, then v
  Param q_norm, k_norm;  // [head_dim], or without a shape: none
  QkvShape heads;
  float scale = 0;     // of q . k
  int64_t window = 0;  // 0 = all earlier tokens
  Tensor cos_sin;      // rope_table(); empty without rotary positions
  struct Saved {
    Tensor qkv, q, k, norm_rstd, attn_out, lse;  // mixed: the heads' outputs side by side
  };

  Saved save(Context&, Tape*, int64_t num_tokens) const;
  Saved restore(Tape&) const;
  // out = output(attention(qkv(x))) + residual. With a cache the call's keys and values are written to the layer's
  // plane and everything is read from there, with the bits of attention over the packed sequences.
  void forward(Context&, const Batch&, Tensor out, Tensor x, Tensor residual, const Saved&, const KvView*,
               int64_t layer) const;
  // forward() in two halves for passes that keep nothing, around what decoder_layer_tail does: q and the cache's rows
  // from x that `before` norms, then mixed from q and the cache.
  QkvProjection qkv_projection(const Batch&, Tensor q, const RmsNorm& before, const KvView&, int64_t layer) const;
  void attention_from_cache(Context&, const Batch&, Tensor mixed, Tensor q, const KvView&, int64_t layer) const;
  void backward(Context&, const Batch&, Tensor dx, Tensor dout, Tensor x, Saved) const;
  void add_params(std::vector<Param*>& out);
};

}  // namespace hone
