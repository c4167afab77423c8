#pragma once
// Stack: a decoder-only model of equal pre-norm blocks between an embedding and a head. A family fills in the parts.
#include <algorithm>
#include <type_traits>

#include "kernels/elementwise/embedding.h"
#include "model/attention.h"

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
    typename Norm::Kept attention_norm;
    SelfAttention::Saved attention;
    Tensor mid, mlp_in;
    typename Norm::Kept mlp_norm;
    typename Mlp::Kept mlp;
  };

  Saved save(Context& context, Tape* tape, Tensor x) const {
    const int64_t num_tokens = x.dim(0), width = x.dim(1);
    Saved kept;
    kept.attention_in = save_if_all(context, tape, x.dtype, {num_tokens, width});
    kept.attention_norm = attention_norm.keep(tape, num_tokens);
    kept.attention = attention.save(context, tape, num_tokens);
    kept.mid = hone::save(context, tape, x.dtype, {num_tokens, width});
    kept.mlp_in = save_if_all(context, tape, x.dtype, {num_tokens, width});
    kept.mlp_norm = mlp_norm.keep(tape, num_tokens);
    kept.mlp = mlp.keep(context, tape, num_tokens);
    return kept;
  }
  Saved restore(Tape& tape) const {
    Saved kept;
    kept.mlp = mlp.take_back(tape);
    kept.mlp_norm = mlp_norm.take_back(tape);
    kept.mlp_in = restore_if_all(tape);
    kept.mid = tape.pop();
    kept.attention = attention.restore(tape);
    kept.attention_norm = attention_norm.take_back(tape);
    kept.attention_in = restore_if_all(tape);
    return kept;
  }
  void forward(Context& context, const Batch& batch, Tensor out, Tensor x, Tape* tape, const KvView* kv,
               int64_t block) const {
    ScratchScope scope(context);
    const Saved kept = save(context, tape, x);
    attention_norm.forward(context, kept.attention_in, x, kept.attention_norm);
    attention.forward(context, batch, kept.mid, kept.attention_in, x, kept.attention, kv, block);
    mlp_norm.forward(context, kept.mlp_in, kept.mid, kept.mlp_norm);
    mlp.forward(context, out, kept.mlp_in, kept.mid, kept.mlp);
  }
  // Whether decoder_layer_tail and its like do what this block's parts do.
  static constexpr bool fuses = std::is_same_v<Norm, RmsNorm> && std::is_same_v<Mlp, GatedMlp>;
  bool can_fuse() const {
    return attention.qkv.is_plain_gemm() && attention.output.is_plain_gemm() && mlp.gate_up.plain() && mlp.down.plain();
  }
  void backward(Context& context, const Batch& batch, Tensor dx, Tensor x, Tape& tape) const {
    ScratchScope scope(context);
    Saved kept = restore(tape);
    const Tensor dnormed = context.scratch().take(dx.dtype, dx.dims());
    // What a norm gave, once more where it was not kept.
    const auto again = [&](Tensor& normed, const Norm& norm, Tensor from, const typename Norm::Kept& with) {
      if (normed) return;
      normed = context.scratch().take(from.dtype, from.dims());
      norm.forward(context, normed, from, with);
    };
    {
      ScratchScope inner(context);
      again(kept.mlp_in, mlp_norm, kept.mid, kept.mlp_norm);
      mlp.backward(context, dnormed, dx, kept.mlp_in, kept.mlp);
    }
    mlp_norm.backward(context, dx, dnormed, kept.mid, kept.mlp_norm, true);
    again(kept.attention_in, attention_norm, x, kept.attention_norm);
    attention.backward(context, batch, dnormed, dx, kept.attention_in, kept.attention);
    attention_norm.backward(context, dx, dnormed, x, kept.attention_norm, true);
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
class Transformer : public Model {
 public:
  const ModelShape& shape() const override { return shape_; }
  Json config() const override { return config_; }
  std::vector<Param*> base_params() override {
    std::vector<Param*> out{&embedding_};
    if (!positions_.shape.empty()) out.push_back(&positions_);
    for (auto& block : blocks_) block.add_params(out);
    final_norm_.add_params(out);
    if (!head_.shape.empty()) out.push_back(&head_);
    return out;
  }
  std::vector<Linear*> linear_modules() override {
    std::vector<Linear*> out;
    for (auto& block : blocks_) block.add_linears(out);
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
  void forward_layer(int64_t block, Context& context, const Batch& batch, Tensor out, Tensor x, Tape* tape,
                     const KvView* kv) override {
    blocks_[static_cast<size_t>(block)].forward(context, batch, out, x, tape, kv, block);
  }
  void infer_layers(Context& context, const Batch& batch, Tensor x, const KvView* kv) override {
    if constexpr (DecoderLayer<Norm, Mlp>::fuses)
      if (kv && kv->k.front().dtype == x.dtype &&
          std::ranges::all_of(blocks_, [](const auto& block) { return block.can_fuse(); }))
        return infer_fused(context, batch, x, *kv);
    Model::infer_layers(context, batch, x, kv);
  }
  void backward_layer(int64_t block, Context& context, const Batch& batch, Tensor dx, Tensor x, Tape& tape) override {
    blocks_[static_cast<size_t>(block)].backward(context, batch, dx, x, tape);
  }
  void final_norm(Context& context, Tensor hidden, Tensor x, Tape* tape) override {
    final_norm_.forward(context, hidden, x, final_norm_.keep(tape, x.dim(0)));
  }
  void final_norm_backward(Context& context, Tensor dx, Tensor dhidden, Tensor x, Tape& tape) override {
    final_norm_.backward(context, dx, dhidden, x, final_norm_.take_back(tape), false);
  }

 protected:
  // forward_layer() of all blocks with the same bits, from attention to attention.
  void infer_fused(Context& context, const Batch& batch, Tensor x, const KvView& kv) const
      requires(DecoderLayer<Norm, Mlp>::fuses) {
    ScratchScope scope(context);
    const QkvShape& heads = blocks_[0].attention.heads;
    const Tensor q = context.scratch().take(x.dtype, {x.dim(0), heads.num_heads, heads.head_dim});
    const Tensor mixed = context.scratch().take(x.dtype, {x.dim(0), heads.num_heads * heads.head_dim});
    const auto qkv_projection = [&](size_t b) {
      return blocks_[b].attention.qkv_projection(batch, q, blocks_[b].attention_norm, kv, static_cast<int64_t>(b));
    };
    qkv_rope_cache(context, x, qkv_projection(0));
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const auto& block = blocks_[b];
      block.attention.attend(context, batch, mixed, q, kv, static_cast<int64_t>(b));
      decoder_layer_tail(context, x, mixed, block.attention.output.product(),
                         {block.mlp_norm.row_norm(), block.mlp.gate_up.product(), block.mlp.down.product()},
                         b + 1 < blocks_.size() ? qkv_projection(b + 1) : QkvProjection{});
    }
  }
  // `module` is the embedding's Hugging Face name; a tied head has no parameter of its own.
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
  Param embedding_, positions_, head_;  // positions_: learned; it and head_ may be without a shape: none
  std::vector<DecoderLayer<Norm, Mlp>> blocks_;
  Norm final_norm_;
};

}  // namespace hone
