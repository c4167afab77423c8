#pragma once
// Causal grouped-query self-attention with its projections.
#include "kernels/attention/attention.h"
#include "kernels/rope/qkv.h"
#include "kernels/rope/rope.h"
#include "model/layer.h"

namespace hone {

// The rotations of all positions. Layers that rotate alike share one; the model allocates it (Model::allocate_tables).
struct RopeTable {
  RopeConfig config;
  int64_t num_positions = 0;
  Tensor cos_sin{};  // rope_table()
  Buffer bytes{};

  void allocate(Context& context);
};

// Cross-layer attention (Brandon et al. 2024): neighboring layers read the keys and values of the first of them, the
// owner. The others have a projection of queries alone. In a KV cache they name the owner's place. A pass without one
// lends the group memory: the owner writes k and v, and the readers' backward leaves dk and dv to the owner's.
struct SharedKv {
  int64_t owner = 0, last = 0;  // layers owner .. last share
  int64_t num_kv_heads = 0, head_dim = 0;
  // [T, Hk, d] in the dtype of activations, lent by the pass that runs. k: after RoPE. dk and dv: sums over the readers
  // whose backward has run, last layer first; only in a backward pass.
  Tensor k{}, v{}, dk{}, dv{};

  Tensor take(Arena& arena, DType dtype, int64_t num_tokens) const {
    return arena.take(dtype, {num_tokens, num_kv_heads, head_dim});
  }
};

// A model with such layers.
class SharesKv {
 public:
  virtual ~SharesKv() = default;
  // Groups of more than one layer, in the order of layers. They do not overlap.
  virtual std::span<const std::shared_ptr<SharedKv>> shared_kv() const = 0;
};

struct SelfAttention final : Sublayer {
  Linear qkv, output;    // qkv: rows of q, then k, then v
  Param q_norm, k_norm;  // [head_dim]; an empty shape means none
  Param sinks;           // [num_heads]: attention sinks (gpt-oss); an empty shape means none
  QkvShape heads;
  std::optional<Norm> full_q_norm, full_k_norm;  // over the heads side by side, before RoPE (OLMo 2)
  float clip = 0;      // q, k and v are clamped to [-clip, clip] after full norms and before RoPE (OLMoE); 0 = none
  float scale = 0;     // of q . k
  float softcap = 0;   // of the scores; 0 = none
  int64_t window = 0;  // 0 = all earlier tokens
  std::shared_ptr<const RopeTable> rope;  // null without RoPE
  size_t kv_layer = 0;                    // in KvView::layers; assign_kv_layers() sets it
  // Keys and values that neighboring layers share; null: the layer's own. A reader's qkv has rows of q alone.
  std::shared_ptr<SharedKv> shared;
  enum class Sharing : uint8_t { owner, reader, last_reader } sharing = Sharing::owner;

  // out = output(attention(qkv(x))) + residual. With a KV view the new keys and values are written to the layer's
  // cache, and attention reads all keys from there, with the bits of attention over packed sequences.
  void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame&) const override;
  void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const override;
  void add_to(ModuleList& list) override;
  Tensor inner_activation(Saved& saved) const override;
  AttentionCost attention_cost() const override {
    return {.num_heads = heads.num_heads, .products = 2 * heads.num_heads * heads.head_dim, .window = window};
  }
  KvPlace kv_place() override;

  // The two halves of forward() for fused inference. First q and the new cache rows from norm(x) with norm `before`;
  // then attention from q and the cache into `mixed` [T, H * d].
  const SelfAttention* fused_attention(const LayerPass&) const override;
  QkvProjection qkv_projection(const LayerPass&, Tensor q, const RmsNormWeights& before) const;
  void attention_from_cache(Context&, const LayerPass&, Tensor mixed, Tensor q) const;

 private:
  Tensor cos_sin() const { return rope ? rope->cos_sin : Tensor(); }
  bool reads() const { return shared && sharing != Sharing::owner; }
  // The heads of the projection: a reader has no KV heads there.
  QkvShape projected_heads() const {
    QkvShape out = heads;
    if (reads()) out.num_kv_heads = 0;
    return out;
  }
  // Adds the gradients of k and v up over the layers that share them.
  void join_gradients(Context&, Tensor dk, Tensor dv) const;
  AttentionShape attention_shape(const LayerPass&) const;
  // The columns of q and of k in the output of the fused projection.
  Tensor q_columns(Tensor projected) const { return projected.columns(0, heads.num_heads * heads.head_dim); }
  Tensor k_columns(Tensor projected) const {
    return projected.columns(heads.num_heads * heads.head_dim, heads.num_kv_heads * heads.head_dim);
  }
  // The projection after full_q_norm and full_k_norm, in scratch memory; `projected` itself without them.
  struct FullNormStats {
    Norm::Stats q, k;
  };
  Tensor normed(Context&, Tensor projected, const FullNormStats&) const;
  // The output of normed() after `clip`, in scratch memory; `normed` itself without a clip.
  Tensor clipped(Context&, Tensor normed) const;
  // q, k, and with a cache its new rows, from the output of clipped().
  QkvForward rotation(const LayerPass&, Tensor clipped, Tensor q, Tensor k, Tensor norm_rstd) const;
};

}  // namespace hone
