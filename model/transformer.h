#pragma once
// Transformer: a decoder-only model of equal pre-norm layers between embedding and lm_head. A family sets the parts.
#include <algorithm>
#include <type_traits>

#include "kernels/elementwise/embedding.h"
#include "model/attention.h"
#include "model/layer_activations.h"

namespace hone {

// mid = x + attention(norm(x)); out = mid + mlp(norm(mid)).
template <class Norm, class Mlp>
struct DecoderLayer {
  Norm attention_norm;
  SelfAttention attention;
  Norm mlp_norm;
  Mlp mlp;

  struct Saved {
    Tensor attention_in;
    typename Norm::Saved attention_norm;
    SelfAttention::Saved attention;
    Tensor mid, mlp_in;
    typename Norm::Saved mlp_norm;
    typename Mlp::Saved mlp;
  };

  Saved save(Context& context, Tape* tape, Tensor x) const {
    const int64_t num_tokens = x.dim(0), width = x.dim(1);
    Saved saved;
    saved.attention_in = save_if_all(context, tape, x.dtype, {num_tokens, width});
    saved.attention_norm = attention_norm.save(tape, num_tokens);
    saved.attention = attention.save(context, tape, num_tokens);
    saved.mid = hone::save(context, tape, x.dtype, {num_tokens, width});
    saved.mlp_in = save_if_all(context, tape, x.dtype, {num_tokens, width});
    saved.mlp_norm = mlp_norm.save(tape, num_tokens);
    saved.mlp = mlp.save(context, tape, num_tokens);
    return saved;
  }
  Saved restore(Tape& tape) const {
    Saved saved;
    saved.mlp = mlp.restore(tape);
    saved.mlp_norm = mlp_norm.restore(tape);
    saved.mlp_in = restore_if_all(tape);
    saved.mid = tape.pop();
    saved.attention = attention.restore(tape);
    saved.attention_norm = attention_norm.restore(tape);
    saved.attention_in = restore_if_all(tape);
    return saved;
  }
  void forward(Context& context, const Batch& batch, Tensor out, Tensor x, Tape* tape, const KvView* kv,
               int64_t layer) const {
    ScratchScope scope(context);
    const Saved saved = save(context, tape, x);
    attention_norm.forward(context, saved.attention_in, x, saved.attention_norm);
    attention.forward(context, batch, saved.mid, saved.attention_in, x, saved.attention, kv, layer);
    mlp_norm.forward(context, saved.mlp_in, saved.mid, saved.mlp_norm);
    mlp.forward(context, out, saved.mlp_in, saved.mid, saved.mlp);
  }
  // True if the fused ops (qkv_rope_cache, decoder_layer_tail) compute this kind of layer.
  static constexpr bool fuses = std::is_same_v<Norm, RmsNorm> && std::is_same_v<Mlp, GatedMlp>;
  bool can_fuse() const {
    return attention.qkv.is_plain_gemm() && attention.output.is_plain_gemm() && mlp.gate_up.is_plain_gemm() &&
           mlp.down.is_plain_gemm();
  }
  void backward(Context& context, const Batch& batch, Tensor dx, Tensor x, Tape& tape) const {
    ScratchScope scope(context);
    Saved saved = restore(tape);
    const Tensor dnormed = context.scratch().take(dx.dtype, dx.dims());
    // Recomputes a norm's output unless it was saved.
    const auto recompute = [&](Tensor& normed, const Norm& norm, Tensor from, const typename Norm::Saved& with) {
      if (normed) return;
      normed = context.scratch().take(from.dtype, from.dims());
      norm.forward(context, normed, from, with);
    };
    {
      ScratchScope inner(context);
      recompute(saved.mlp_in, mlp_norm, saved.mid, saved.mlp_norm);
      mlp.backward(context, dnormed, dx, saved.mlp_in, saved.mlp);
    }
    mlp_norm.backward(context, dx, dnormed, saved.mid, saved.mlp_norm, true);
    recompute(saved.attention_in, attention_norm, x, saved.attention_norm);
    attention.backward(context, batch, dnormed, dx, saved.attention_in, saved.attention);
    attention_norm.backward(context, dx, dnormed, x, saved.attention_norm, true);
  }
  void add_params(std::vector<Param*>& out) {
    attention_norm.add_params(out);
    attention.add_params(out);
    mlp_norm.add_params(out);
    mlp.add_params(out);
  }
  void add_linears(std::vector<Linear*>& out) {
    out.insert(out.end(), {&attention.qkv, &attention.output});
    mlp.add_linears(out);
  }
};

template <class Norm, class Mlp>
class Transformer : public Model, public LayerActivationSource {
 public:
  const ModelShape& shape() const override { return shape_; }
  Json config() const override { return config_; }
  std::vector<Param*> base_params() override {
    std::vector<Param*> out{&embedding_};
    if (!positions_.shape.empty()) out.push_back(&positions_);
    for (auto& layer : layers_) layer.add_params(out);
    final_norm_.add_params(out);
    if (!head_.shape.empty()) out.push_back(&head_);
    return out;
  }
  std::vector<Linear*> linear_modules() override {
    std::vector<Linear*> out;
    for (auto& layer : layers_) layer.add_linears(out);
    return out;
  }
  std::vector<Param*> layer_params(int64_t layer) override {
    std::vector<Param*> out;
    layers_[static_cast<size_t>(layer)].add_params(out);
    return out;
  }
  std::vector<Linear*> layer_linears(int64_t layer) override {
    std::vector<Linear*> out;
    layers_[static_cast<size_t>(layer)].add_linears(out);
    return out;
  }
  Param& lm_head() override { return head_.shape.empty() ? embedding_ : head_; }

  void embed(Context& context, const Batch& batch, Tensor x) override {
    embedding_forward(context, x, embedding_.value, batch.tokens, false);
    if (positions_.value) embedding_forward(context, x, positions_.value, batch.positions, true);
  }
  void embed_backward(Context& context, const Batch& batch, Tensor dx) override {
    if (embedding_.grad) embedding_backward(context, embedding_.grad, dx, batch.tokens);
    if (positions_.grad) embedding_backward(context, positions_.grad, dx, batch.positions);
  }
  void forward_layer(int64_t layer, Context& context, const Batch& batch, Tensor out, Tensor x, Tape* tape,
                     const KvView* kv) override {
    layers_[static_cast<size_t>(layer)].forward(context, batch, out, x, tape, kv, layer);
  }
  void infer_layers(Context& context, const Batch& batch, Tensor x, const KvView* kv) override {
    if constexpr (DecoderLayer<Norm, Mlp>::fuses)
      if (kv && kv->k.front().dtype == x.dtype &&
          std::ranges::all_of(layers_, [](const auto& layer) { return layer.can_fuse(); }))
        return infer_fused(context, batch, x, *kv);
    Model::infer_layers(context, batch, x, kv);
  }
  void backward_layer(int64_t layer, Context& context, const Batch& batch, Tensor dx, Tensor x, Tape& tape) override {
    layers_[static_cast<size_t>(layer)].backward(context, batch, dx, x, tape);
  }
  LayerActivations restore_activations(int64_t layer, Tape& tape) const override {
    const auto saved = layers_[static_cast<size_t>(layer)].restore(tape);
    return {.attn_out = saved.attention.attn_out, .activated = saved.mlp.activated};
  }
  void final_norm(Context& context, Tensor hidden, Tensor x, Tape* tape) override {
    final_norm_.forward(context, hidden, x, final_norm_.save(tape, x.dim(0)));
  }
  void final_norm_backward(Context& context, Tensor dx, Tensor dhidden, Tensor x, Tape& tape) override {
    final_norm_.backward(context, dx, dhidden, x, final_norm_.restore(tape), false);
  }

 protected:
  // All layers in fused ops, each from one attention to the next, with the bits of forward_layer().
  void infer_fused(Context& context, const Batch& batch, Tensor x, const KvView& kv) const
      requires(DecoderLayer<Norm, Mlp>::fuses) {
    ScratchScope scope(context);
    const QkvShape& heads = layers_[0].attention.heads;
    const Tensor q = context.scratch().take(x.dtype, {x.dim(0), heads.num_heads, heads.head_dim});
    const Tensor mixed = context.scratch().take(x.dtype, {x.dim(0), heads.num_heads * heads.head_dim});
    const auto qkv_projection = [&](size_t b) {
      return layers_[b].attention.qkv_projection(batch, q, layers_[b].attention_norm, kv, static_cast<int64_t>(b));
    };
    qkv_rope_cache(context, {.x = x, .to = qkv_projection(0)});
    for (size_t b = 0; b < layers_.size(); ++b) {
      const auto& layer = layers_[b];
      layer.attention.attention_from_cache(context, batch, mixed, q, kv, static_cast<int64_t>(b));
      decoder_layer_tail(context,
                         {.x = x,
                          .mixed = mixed,
                          .output = layer.attention.output.product(),
                          .mlp = {layer.mlp_norm.row_norm(), layer.mlp.gate_up.product(), layer.mlp.down.product()},
                          .next = b + 1 < layers_.size() ? qkv_projection(b + 1) : QkvProjection{}});
    }
  }
  // module: the embedding's Hugging Face name. A tied lm_head has no parameter of its own.
  void make_embedding_and_lm_head(const std::string& module, bool tied, double init_std) {
    embedding_ = table(module, shape_.vocab_size, init_std);
    embedding_.lookup = true;
    if (!tied) head_ = table("lm_head", shape_.vocab_size, init_std);
  }
  Param table(const std::string& module, int64_t rows, double init_std) const {
    return {.slices = {{module + ".weight", rows}}, .shape = {rows, shape_.hidden_size}, .init_std = init_std};
  }

  ModelShape shape_;
  Json config_;
  Param embedding_, positions_, head_;  // positions_ (learned) and head_ (lm_head): an empty shape means none
  std::vector<DecoderLayer<Norm, Mlp>> layers_;
  Norm final_norm_;
};

}  // namespace hone
