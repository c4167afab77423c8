#pragma once
// Causal grouped-query self-attention with its projections.
#include "kernels/rope/qkv.h"
#include "model/modules.h"

namespace hone {

struct SelfAttention {
  Linear qkv, output;    // qkv: rows of q, then k, then v
  Param q_norm, k_norm;  // [head_dim]; an empty shape means none
  QkvShape heads;
  float scale = 0;     // of q . k
  int64_t window = 0;  // 0 = all earlier tokens
  Tensor cos_sin;      // rope_table(); empty without RoPE
  struct Saved {
    Tensor qkv, q, k, norm_rstd, attn_out, lse;  // attn_out: the heads' outputs side by side
  };

  Saved save(Context&, Tape*, int64_t num_tokens) const;
  Saved restore(Tape&) const;
  // out = output(attention(qkv(x))) + residual. With a KV view the new keys and values are written to the layer's
  // cache, and attention reads all keys from there, with the bits of attention over packed sequences.
  void forward(Context&, const Batch&, Tensor out, Tensor x, Tensor residual, const Saved&, const KvView*,
               int64_t layer) const;
  // The two halves of forward() for fused inference. First q and the new cache rows from norm(x) with norm `before`;
  // then attention from q and the cache into `mixed`. decoder_layer_tail does the rest of the layer.
  QkvProjection qkv_projection(const Batch&, Tensor q, const RmsNorm& before, const KvView&, int64_t layer) const;
  void attention_from_cache(Context&, const Batch&, Tensor mixed, Tensor q, const KvView&, int64_t layer) const;
  void backward(Context&, const Batch&, Tensor dx, Tensor dout, Tensor x, Saved) const;
  void add_params(std::vector<Param*>& out);
};

}  // namespace hone
