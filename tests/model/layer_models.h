#pragma once
// Models of unlike layers, by a list of short names, and an MLP with a loss of its own.
#include "model/mlp.h"
#include "model/transformer.h"
#include "tests/model/tiny_model.h"

namespace hone::test {

struct LayerSizes {
  static constexpr int64_t width = 12, inner = 20, dim = 6, max_positions = 40;
};

// A gated MLP with a loss of its own: factor * sum over tokens of weight * |x|^2. It offers nothing to fused ops.
class MlpWithLoss final : public Sublayer {
 public:
  explicit MlpWithLoss(std::unique_ptr<GatedMlp> mlp) : mlp_(std::move(mlp)) {}
  void forward(Context& context, const LayerPass& pass, Tensor out, Tensor x, Tensor residual,
               Frame& frame) const override {
    mlp_->forward(context, pass, out, x, residual, frame);
    if (!pass.aux.sums || context.kind() == DeviceKind::meta) return;
    EXPECT_EQ(pass.aux.sums.size(), num_aux_sums());
    for (int64_t t = 0; t < x.dim(0); ++t) {
      const float weight = pass.aux.weights.ptr<float>()[t];
      for (int64_t i = 0; i < LayerSizes::width; ++i)
        pass.aux.sums.ptr<float>()[1] += weight * x.row<float>(t)[i] * x.row<float>(t)[i];
      pass.aux.sums.ptr<float>()[0] += weight;
    }
  }
  void backward(Context& context, const LayerPass& pass, Tensor dx, Tensor dout, Tensor x,
                Saved& saved) const override {
    mlp_->backward(context, pass, dx, dout, x, saved);
    if (!pass.aux.weights || context.kind() == DeviceKind::meta) return;
    for (int64_t t = 0; t < x.dim(0); ++t)
      for (int64_t i = 0; i < LayerSizes::width; ++i)
        dx.row<float>(t)[i] += 2 * factor * pass.aux.weights.ptr<float>()[t] * x.row<float>(t)[i];
  }
  void add_to(ModuleList& list) override { mlp_->add_to(list); }
  int64_t num_aux_sums() const override { return 2; }
  void end_step(Context&, std::span<const double> sums, AuxReport& report) override {
    report.loss += factor * sums[1];
    report.add("weight", sums[0]);
    report.add("norm_max", sums[1]);
  }
  static constexpr float factor = 0.7f;

 private:
  std::unique_ptr<GatedMlp> mlp_;
};

inline std::unique_ptr<SelfAttention> attention(const std::string& name, int64_t layer,
                                                std::shared_ptr<RopeTable> rope) {
  auto out = std::make_unique<SelfAttention>();
  out->qkv =
      Linear({{name + "q", 4 * LayerSizes::dim}, {name + "k", 2 * LayerSizes::dim}, {name + "v", 2 * LayerSizes::dim}},
             LayerSizes::width, true, 0.3);
  out->output = Linear({{name + "o", LayerSizes::width}}, 4 * LayerSizes::dim, false, 0.3);
  out->heads = {4, 2, LayerSizes::dim, rope ? LayerSizes::dim : 0, 1e-5f};
  out->scale = 0.4f;
  out->rope = std::move(rope);
  out->kv_layer = static_cast<size_t>(layer);
  return out;
}

inline std::unique_ptr<GatedMlp> gated(const std::string& name) {
  auto out = std::make_unique<GatedMlp>();
  out->gate_up =
      Linear({{name + "gate", LayerSizes::inner}, {name + "up", LayerSizes::inner}}, LayerSizes::width, false, 0.3);
  out->down = Linear({{name + "down", LayerSizes::width}}, LayerSizes::inner, true, 0.3);
  return out;
}

inline std::unique_ptr<Sublayer> make_mlp(char kind, const std::string& name) {
  if (kind == 's') return gated(name);
  if (kind == 'a') return std::make_unique<MlpWithLoss>(gated(name));
  auto out = std::make_unique<PlainMlp>();
  out->up = Linear({{name + "up", LayerSizes::inner}}, LayerSizes::width, true, 0.3);
  out->down = Linear({{name + "down", LayerSizes::width}}, LayerSizes::inner, true, 0.3);
  return out;
}

// A layer is two letters: placement of the norms (p pre, o post, b both, = parallel, l LayerNorm before), then the MLP
// (s SwiGLU, g GELU, a SwiGLU with a loss). A third letter n leaves out RoPE.
inline std::unique_ptr<Model> make_model_of(const std::vector<std::string>& layers, const Json& config = {}) {
  TransformerParts parts{.shape = {.vocab_size = 19,
                                   .hidden_size = LayerSizes::width,
                                   .num_layers = static_cast<int64_t>(layers.size()),
                                   .num_attention_heads = 4,
                                   .num_kv_heads = 2,
                                   .head_dim = LayerSizes::dim,
                                   .intermediate_size = LayerSizes::inner,
                                   .max_positions = LayerSizes::max_positions}};
  parts.config = config;
  const auto rope = std::make_shared<RopeTable>(
      RopeTable{.config = {.dim = LayerSizes::dim, .theta = 100}, .num_positions = LayerSizes::max_positions});
  parts.ropes = {rope};
  parts.make_embedding_and_lm_head("embed", false, 0.3);
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = concat("layers.", i, ".");
    const char placement = layers[i][0];
    DecoderLayer layer;
    layer.parallel = placement == '=';
    const auto norm = [&](const char* module) {
      return placement == 'l' ? Norm::layer(name + module, LayerSizes::width, 1e-5)
                              : Norm::rms(name + module, LayerSizes::width, 1e-5);
    };
    if (placement != 'o') {
      layer.mixer.before = norm("norm_1");
      layer.mlp.before = norm("norm_2");
    }
    if (placement == 'o' || placement == 'b') {
      layer.mixer.after = norm("norm_3");
      layer.mlp.after = norm("norm_4");
    }
    layer.mixer.sublayer =
        attention(name + "attention.", static_cast<int64_t>(i), layers[i].size() > 2 ? nullptr : rope);
    layer.mlp.sublayer = make_mlp(layers[i][1], name + "mlp.");
    parts.layers.push_back(std::move(layer));
  }
  parts.final_norm = Norm::rms("norm", LayerSizes::width, 1e-5);
  return make_transformer(std::move(parts));
}

}  // namespace hone::test
