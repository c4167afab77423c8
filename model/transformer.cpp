#include "model/transformer.h"

#include <algorithm>

#include "kernels/decoder_layer/moe_layer_tail.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/elementwise/embedding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/rmsnorm.h"

namespace hone {
namespace {

class Transformer final : public Model,
                          public LayerActivationSource,
                          public AttentionCostSource,
                          public MtpSource,
                          public SharesKv {
 public:
  explicit Transformer(TransformerParts parts) : parts_(std::move(parts)) {
    std::vector<KvPlace> places;
    for (const MtpModule& module : parts_.mtp) places.push_back(module.layer.mixer.sublayer->kv_place());
    assign_kv_layers(places);  // in a cache of their own
    if (!parts_.mtp.empty()) mtp_ = std::make_unique<Mtp>(std::move(parts_.mtp), parts_.mtp_loss_coef);
    places.clear();
    for (DecoderLayer& layer : parts_.layers) {
      // Trained parameters of a layer are neighbors (model/units.h): the biases of routers come last.
      ModuleList& own = layer_modules_.emplace_back();
      layer.add_to(own);
      std::ranges::stable_partition(own.params, [](const Param* param) { return param->trainable; });
      first_sum_.push_back(first_sum_.back() + layer.num_aux_sums());
      places.push_back(layer.mixer.sublayer->kv_place());
    }
    kv_groups_ = assign_kv_layers(places);
  }
  const ModelShape& shape() const override { return parts_.shape; }
  const std::vector<KvGroupShape>& kv_groups() const override { return kv_groups_; }
  std::vector<AttentionCost> attention_costs() const override {
    std::vector<AttentionCost> out;
    for (const DecoderLayer& layer : parts_.layers) out.push_back(layer.mixer.sublayer->attention_cost());
    return out;
  }
  Json config() const override { return parts_.config; }
  ModuleList modules() override;
  ModuleList layer_modules(int64_t layer) override { return layer_modules_[static_cast<size_t>(layer)]; }
  Param& lm_head() override { return parts_.lm_head.shape.empty() ? parts_.embedding : parts_.lm_head; }

  void embed(Context& context, const Batch& batch, Tensor x) override;
  void embed_backward(Context& context, const Batch& batch, Tensor dx) override;
  void forward_layer(int64_t layer, Context& context, const LayerPass& pass, Tensor out, Tensor x) override {
    at(layer).forward(context, pass_of(layer, pass), out, x);
  }
  void infer_layers(Context& context, const LayerPass& pass, Tensor x) override;
  void backward_layer(int64_t layer, Context& context, const LayerPass& pass, Tensor dx, Tensor x) override {
    at(layer).backward(context, pass_of(layer, pass), dx, x);
  }
  void final_norm(Context& context, Tensor hidden, Tensor x, Tape* tape) override {
    Frame frame(context, tape);
    parts_.final_norm.forward(context, hidden, x, parts_.final_norm.save(frame, x.dim(0)));
  }
  void final_norm_backward(Context& context, Tensor dx, Tensor dhidden, Tensor x, Tape& tape) override {
    Saved saved = tape.pop_frame();
    parts_.final_norm.backward(context, dx, dhidden, x, parts_.final_norm.restore(saved), false);
  }
  LayerActivations restore_activations(int64_t layer, Tape& tape) const override {
    const DecoderLayer& of = parts_.layers[static_cast<size_t>(layer)];
    ResidualBranch::Frames mlp = of.mlp.restore(tape), mixer = of.mixer.restore(tape);
    tape.pop_frame();
    return {.attn_out = of.mixer.sublayer->inner_activation(mixer.of_sublayer),
            .activated = of.mlp.sublayer->inner_activation(mlp.of_sublayer)};
  }
  int64_t num_aux_sums() const override { return first_sum_.back() + (mtp_ ? mtp_->num_aux_sums() : 0); }
  AuxReport end_step(Context& context, std::span<const double> sums) override;
  Mtp* mtp() const override { return mtp_.get(); }
  std::span<const std::shared_ptr<SharedKv>> shared_kv() const override { return parts_.shared_kv; }

 private:
  void allocate_tables(Context& context) override {
    for (const auto& rope : parts_.ropes) rope->allocate(context);
  }
  float embedding_scale(DType dtype) const {
    const auto scale = static_cast<float>(parts_.embedding_scale);
    return dtype == DType::bf16 ? to_float(to_bf16(scale)) : scale;
  }
  DecoderLayer& at(int64_t layer) { return parts_.layers[static_cast<size_t>(layer)]; }
  // The pass as a layer sees it: with its own range of the sums.
  LayerPass pass_of(int64_t layer, const LayerPass& pass) {
    LayerPass out = pass;
    if (pass.aux.sums)
      out.aux.sums = pass.aux.sums.rows(first_sum_[static_cast<size_t>(layer)], at(layer).num_aux_sums());
    return out;
  }

  TransformerParts parts_;
  std::vector<ModuleList> layer_modules_;
  std::unique_ptr<Mtp> mtp_;
  std::vector<KvGroupShape> kv_groups_;
  std::vector<int64_t> first_sum_{0};  // of each layer, last the first of the modules of multi-token prediction
};

ModuleList Transformer::modules() {
  ModuleList out;
  out.add(parts_.embedding);
  out.add(parts_.positions);
  for (const ModuleList& layer : layer_modules_) {
    out.params.insert(out.params.end(), layer.params.begin(), layer.params.end());
    out.linears.insert(out.linears.end(), layer.linears.begin(), layer.linears.end());
  }
  // Parameters that are not trained are the first or the last of the back unit (model/units.h): a critic's lm_head, and
  // the biases of routers, which Mtp lists last.
  if (mtp_) out.add(parts_.lm_head);
  parts_.final_norm.add_to(out);
  if (mtp_)
    mtp_->add_to(out);
  else
    out.add(parts_.lm_head);
  return out;
}

void Transformer::embed(Context& context, const Batch& batch, Tensor x) {
  embedding_forward(context, x, parts_.embedding.value, batch.tokens, false);
  if (parts_.positions.value) embedding_forward(context, x, parts_.positions.value, batch.positions, true);
  if (const float scale = embedding_scale(x.dtype); scale != 1) dropout(context, x, x, scale, {});
}

void Transformer::embed_backward(Context& context, const Batch& batch, Tensor dx) {
  const ScratchScope scope(context);
  if (const float scale = embedding_scale(dx.dtype); scale != 1) {
    const Tensor scaled = context.scratch().take(dx.dtype, dx.dims());
    dropout(context, scaled, dx, scale, {});
    dx = scaled;
  }
  if (parts_.embedding.grad) embedding_backward(context, parts_.embedding.grad_to_add_to(context), dx, batch.tokens);
  if (parts_.positions.grad) embedding_backward(context, parts_.positions.grad, dx, batch.positions);
}

AuxReport Transformer::end_step(Context& context, std::span<const double> sums) {
  AuxReport report;
  for (size_t layer = 0; layer < parts_.layers.size(); ++layer) {
    const auto first = static_cast<size_t>(first_sum_[layer]), last = static_cast<size_t>(first_sum_[layer + 1]);
    parts_.layers[layer].end_step(context, sums.subspan(first, last - first), report);
  }
  if (mtp_) mtp_->end_step(context, sums.subspan(static_cast<size_t>(first_sum_.back())), report);
  return report;
}

// The fused ops that a layer allows. norm: before the mixer.
struct FusedMixer {
  const SelfAttention* attention = nullptr;
  RmsNormWeights norm{};
};

FusedMixer fused_mixer(const DecoderLayer& layer, const LayerPass& pass) {
  const ResidualBranch& branch = layer.mixer;
  const std::optional<RmsNormWeights> norm = branch.before ? branch.before->fused() : std::nullopt;
  if (!norm || branch.after || layer.parallel) return {};
  return {branch.sublayer->fused_attention(pass), *norm};
}

// The operands of decoder_layer_tail for the MLP; nothing if it does not compute this one.
std::optional<GatedMlpWeights> fused_tail(const DecoderLayer& layer) {
  const ResidualBranch& branch = layer.mlp;
  const std::optional<RmsNormWeights> norm = branch.before ? branch.before->fused() : std::nullopt;
  const std::optional<FusedMlp> mlp = branch.sublayer->fused_mlp();
  if (!norm || !mlp || branch.after) return {};
  return GatedMlpWeights{*norm, mlp->gate_up, mlp->down};
}

// The operands of moe_layer_tail for a mixture of experts, without those of attention and of the next layer. Nothing if
// it does not compute this one, or has more rows than the steps of moe_layer_tail are made for.
std::optional<MoeLayerTail> fused_experts(const DecoderLayer& layer, const LayerPass& pass, int64_t num_rows) {
  const ResidualBranch& branch = layer.mlp;
  const std::optional<RmsNormWeights> norm = branch.before ? branch.before->fused() : std::nullopt;
  if (!norm || branch.after || num_rows > max_rows_norm_in_gemm) return {};
  const std::optional<FusedExperts> experts = branch.sublayer->fused_experts(pass);
  if (!experts) return {};
  return MoeLayerTail{.norm = *norm,
                      .router = experts->router,
                      .gate_up = experts->gate_up,
                      .down = experts->down,
                      .rule = experts->rule,
                      .num_choices = experts->num_choices,
                      .activation = experts->activation,
                      .clamped = experts->clamped};
}

// What follows attention in a layer whose MLP neither of the two ops computes. The norm before the MLP is part of the
// router's product for few rows, and of the output projection for more.
void output_and_mlp(Context& context, const LayerPass& pass, const DecoderLayer& layer, const GemmWeights& output,
                    Tensor x, Tensor mixed) {
  const ScratchScope scope(context);
  const ResidualBranch& branch = layer.mlp;
  const std::optional<RmsNormWeights> norm = branch.before ? branch.before->fused() : std::nullopt;
  const auto project = [&] {
    gemm_forward(context, {.y = x, .x = mixed, .w = output.w, .bias = output.bias, .residual = x});
  };
  if (!norm || branch.after) {
    project();
    return branch.forward(context, pass, x, x, x);
  }
  const Tensor normed = context.scratch().take(x.dtype, x.dims());
  if (x.dim(0) <= max_rows_norm_in_gemm) {
    project();
    if (branch.sublayer->infer_with_norm(context, pass, *norm, x, x, x)) return;
    rmsnorm_forward(context, normed, {}, x, norm->weight, norm->eps, 0);
  } else {
    gemm_rmsnorm(context, {.y = x, .normed = normed, .x = mixed, .product = output, .residual = x, .norm = *norm});
  }
  Frame frame(context, nullptr);
  branch.sublayer->forward(context, pass, x, normed, x, frame);
}

// Each layer in the fewest ops that its parts allow: qkv_rope_cache before attention, and decoder_layer_tail or
// moe_layer_tail after it, which go on to the projection of the next layer. Other layers run as in training.
void Transformer::infer_layers(Context& context, const LayerPass& pass, Tensor x) {
  const ScratchScope scope(context);
  const int64_t T = x.dim(0);
  std::vector<FusedMixer> mixers;
  int64_t columns = 0;  // of q and of attention's output, at most
  for (const DecoderLayer& layer : parts_.layers) {
    mixers.push_back(fused_mixer(layer, pass));
    if (const SelfAttention* attention = mixers.back().attention)
      columns = std::max(columns, attention->heads.num_heads * attention->heads.head_dim);
  }
  mixers.push_back({});
  const Tensor q_memory = columns > 0 ? context.scratch().take(x.dtype, {T * columns}) : Tensor(),
               mixed_memory = columns > 0 ? context.scratch().take(x.dtype, {T * columns}) : Tensor();
  const auto q_of = [&](const SelfAttention& attention) {
    const QkvShape& heads = attention.heads;
    return Tensor(q_memory.data, x.dtype, x.device, {T, heads.num_heads, heads.head_dim});
  };
  const auto projection_of = [&](const FusedMixer& mixer) {
    return mixer.attention->qkv_projection(pass, q_of(*mixer.attention), mixer.norm);
  };
  bool projected = false;  // the tail of the layer before wrote q and the cache's rows
  for (size_t i = 0; i < parts_.layers.size(); ++i) {
    const DecoderLayer& layer = parts_.layers[i];
    const SelfAttention* attention = mixers[i].attention;
    if (!attention) {
      layer.forward(context, pass, x, x);
      continue;
    }
    if (!projected) qkv_rope_cache(context, {.x = x, .to = projection_of(mixers[i])});
    const Tensor mixed(mixed_memory.data, x.dtype, x.device,
                       {T, attention->heads.num_heads * attention->heads.head_dim});
    attention->attention_from_cache(context, pass, mixed, q_of(*attention));
    const GemmWeights output = *attention->output.gemm();
    const auto next = [&] { return mixers[i + 1].attention ? projection_of(mixers[i + 1]) : QkvProjection{}; };
    projected = mixers[i + 1].attention != nullptr;
    if (const std::optional<GatedMlpWeights> mlp = fused_tail(layer)) {
      decoder_layer_tail(context, {.x = x, .mixed = mixed, .output = output, .mlp = *mlp, .next = next()});
    } else if (std::optional<MoeLayerTail> tail = fused_experts(layer, pass, T)) {
      tail->x = x;
      tail->mixed = mixed;
      tail->output = output;
      tail->next = next();
      moe_layer_tail(context, *tail);
    } else {
      output_and_mlp(context, pass, layer, output, x, mixed);
      projected = false;
    }
  }
}

}  // namespace

void TransformerParts::make_embedding_and_lm_head(const std::string& module, bool tied, double init_std) {
  embedding = table(module, shape.vocab_size, init_std);
  embedding.lookup = true;
  if (!tied) lm_head = table("lm_head", shape.vocab_size, init_std);
  (tied ? embedding : lm_head).product_grad = true;
}

Param TransformerParts::table(const std::string& module, int64_t rows, double init_std) const {
  return {.slices = {{module + ".weight", rows}}, .shape = {rows, shape.hidden_size}, .init_std = init_std};
}

std::unique_ptr<Model> make_transformer(TransformerParts parts) {
  return std::make_unique<Transformer>(std::move(parts));
}

}  // namespace hone
