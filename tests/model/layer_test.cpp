// Lists of unlike layers: placements of norms, parallel branches, kinds of sublayers, losses made inside a layer.
#include "model/mlp.h"
#include "model/transformer.h"
#include "tests/model/chain_loss.h"

namespace hone::test {
namespace {

constexpr int64_t width = 12, inner = 20, dim = 6, max_positions = 40;

// A gated MLP with a loss of its own: factor * sum over tokens of weight * |x|^2. It offers nothing to fused ops.
class MlpWithLoss final : public Sublayer {
 public:
  explicit MlpWithLoss(std::unique_ptr<GatedMlp> mlp) : mlp_(std::move(mlp)) {}
  void forward(Context& context, const LayerPass& pass, Tensor out, Tensor x, Tensor residual,
               Frame& frame) const override {
    mlp_->forward(context, pass, out, x, residual, frame);
    if (!pass.aux.sums) return;
    EXPECT_EQ(pass.aux.sums.size(), num_aux_sums());
    for (int64_t t = 0; t < x.dim(0); ++t) {
      const float weight = pass.aux.weights.ptr<float>()[t];
      for (int64_t i = 0; i < width; ++i)
        pass.aux.sums.ptr<float>()[1] += weight * x.row<float>(t)[i] * x.row<float>(t)[i];
      pass.aux.sums.ptr<float>()[0] += weight;
    }
  }
  void backward(Context& context, const LayerPass& pass, Tensor dx, Tensor dout, Tensor x,
                Saved& saved) const override {
    mlp_->backward(context, pass, dx, dout, x, saved);
    if (!pass.aux.weights) return;
    for (int64_t t = 0; t < x.dim(0); ++t)
      for (int64_t i = 0; i < width; ++i)
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

std::unique_ptr<SelfAttention> attention(const std::string& name, int64_t layer, std::shared_ptr<RopeTable> rope) {
  auto out = std::make_unique<SelfAttention>();
  out->qkv = Linear({{name + "q", 4 * dim}, {name + "k", 2 * dim}, {name + "v", 2 * dim}}, width, true, 0.3);
  out->output = Linear({{name + "o", width}}, 4 * dim, false, 0.3);
  out->heads = {4, 2, dim, rope ? dim : 0, 1e-5f};
  out->scale = 0.4f;
  out->rope = std::move(rope);
  out->kv_layer = static_cast<size_t>(layer);
  return out;
}

std::unique_ptr<GatedMlp> gated(const std::string& name) {
  auto out = std::make_unique<GatedMlp>();
  out->gate_up = Linear({{name + "gate", inner}, {name + "up", inner}}, width, false, 0.3);
  out->down = Linear({{name + "down", width}}, inner, true, 0.3);
  return out;
}

std::unique_ptr<Sublayer> make_mlp(char kind, const std::string& name) {
  if (kind == 's') return gated(name);
  if (kind == 'a') return std::make_unique<MlpWithLoss>(gated(name));
  auto out = std::make_unique<PlainMlp>();
  out->up = Linear({{name + "up", inner}}, width, true, 0.3);
  out->down = Linear({{name + "down", width}}, inner, true, 0.3);
  return out;
}

// A layer is two letters: placement of the norms (p pre, o post, b both, = parallel, l LayerNorm before), then the MLP
// (s SwiGLU, g GELU, a SwiGLU with a loss). A third letter n leaves out RoPE.
std::unique_ptr<Model> make_model_of(const std::vector<std::string>& layers) {
  TransformerParts parts{.shape = {.vocab_size = 19,
                                   .hidden_size = width,
                                   .num_layers = static_cast<int64_t>(layers.size()),
                                   .num_attention_heads = 4,
                                   .num_kv_heads = 2,
                                   .head_dim = dim,
                                   .intermediate_size = inner,
                                   .max_positions = max_positions}};
  const auto rope =
      std::make_shared<RopeTable>(RopeTable{.config = {.dim = dim, .theta = 100}, .num_positions = max_positions});
  parts.ropes = {rope};
  parts.make_embedding_and_lm_head("embed", false, 0.3);
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = concat("layers.", i, ".");
    const char placement = layers[i][0];
    DecoderLayer layer{.parallel = placement == '='};
    const auto norm = [&](const char* module) {
      return placement == 'l' ? Norm::layer(name + module, width, 1e-5) : Norm::rms(name + module, width, 1e-5);
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
  parts.final_norm = Norm::rms("norm", width, 1e-5);
  return make_transformer(std::move(parts));
}

class LayerList : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  LayerList() : device_(cpu_device()), context_(*device_), model_(make_model_of(GetParam())) {
    make_weights(context_, *model_, true);
    for (const size_t length : {9, 1, 6})
      sequences_.push_back(random_tokens(length, 19, static_cast<uint32_t>(length)));
  }
  std::vector<BatchPart> parts() const { return {sequences_.begin(), sequences_.end()}; }

  std::unique_ptr<Device> device_;
  Context context_;
  std::unique_ptr<Model> model_;
  std::vector<std::vector<int32_t>> sequences_;
};

TEST_P(LayerList, GradientOfTheWholeChain) {
  ChainLoss loss(context_, *model_, parts());
  expect_chain_gradient(loss, *model_);
}

TEST_P(LayerList, RecomputationHasTheSameBits) {
  ChainLoss loss(context_, *model_, parts());
  loss.gradient(Recompute::none);
  const std::vector<float> kept = download(context_, model_->flat_grads());
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    loss.gradient(recompute);
    EXPECT_EQ(download(context_, model_->flat_grads()), kept);
  }
}

// Fused ops run where neighboring layers allow them; the bits are those of one layer after the other.
TEST_P(LayerList, DecodingHasTheBitsOfOnePass) {
  const std::vector<int32_t> ids = random_tokens(17, 19, 1);
  TinyCache cache(context_, model_->shape(), 1);
  std::vector<float> hidden;
  for (size_t at = 0; at < ids.size();) {
    const size_t length = at == 0 ? 5 : 1 + at % 3;
    const size_t count = std::min(length, ids.size() - at);
    const BatchPart part{std::span(ids).subspan(at, count), static_cast<int32_t>(at)};
    const int64_t sequence = 0;
    const std::vector<float> rows = hidden_of(context_, *model_, {&part, 1}, &cache.view({&part, 1}, {&sequence, 1}));
    hidden.insert(hidden.end(), rows.begin(), rows.end());
    at += count;
  }
  EXPECT_EQ(hidden, hidden_of(context_, *model_, {{BatchPart{ids}}}));
}

INSTANTIATE_TEST_SUITE_P(All, LayerList,
                         testing::Values(std::vector<std::string>{"ps", "ps"}, std::vector<std::string>{"os", "osn"},
                                         std::vector<std::string>{"bs", "bg"}, std::vector<std::string>{"=s", "=g"},
                                         std::vector<std::string>{"ps", "pa", "ps"},
                                         std::vector<std::string>{"ps", "os", "ps", "lg", "=s", "bs", "psn", "pa"},
                                         std::vector<std::string>{"pa", "oa", "=a", "pgn"}));

// Two micro-batches add up to what one makes.
TEST(AuxLoss, SumsDoNotDependOnTheSplit) {
  const auto device = cpu_device();
  Context context(*device);
  const std::unique_ptr<Model> model = make_model_of({"pa", "ps", "ba"});
  make_weights(context, *model, true);
  ASSERT_EQ(model->num_aux_sums(), 4);
  const std::vector<int32_t> a = random_tokens(7, 19, 1), b = random_tokens(4, 19, 2);
  const auto sums_of = [&](std::vector<BatchPart> parts) {
    Arena arena(*device);
    TrainingPass pass(context, *model, Recompute::full);
    const Batch batch = pack_batch(context, arena, parts);
    const std::vector<int32_t> rows = all_rows(batch.num_tokens);
    std::vector<float> weights(rows.size(), 1.0f / 11), sums(4);
    pass.forward(batch, upload(context, arena, std::span<const int32_t>(rows)), {}, {},
                 {.weights = host_view(std::span(weights)), .sums = host_view(std::span(sums))});
    return std::vector<double>(sums.begin(), sums.end());
  };
  const std::vector<double> whole = sums_of({{a}, {b}}), first = sums_of({{a}}), second = sums_of({{b}});
  std::vector<double> sum(4);
  for (size_t i = 0; i < 4; ++i) {
    sum[i] = first[i] + second[i];
    EXPECT_NEAR(sum[i], whole[i], 1e-5 * std::abs(whole[i]));
  }
  const AuxReport one = model->end_step(context, whole), two = model->end_step(context, sum);
  EXPECT_GT(one.loss, 0);
  EXPECT_NEAR(one.loss, two.loss, 1e-5 * one.loss);
  EXPECT_NEAR(one.loss, MlpWithLoss::factor * (whole[1] + whole[3]), 1e-5 * one.loss);
  EXPECT_NEAR(one.metrics().at("weight"), 1, 1e-5);
  EXPECT_EQ(one.metrics().at("norm_max"), std::max(whole[1], whole[3]));
}

}  // namespace
}  // namespace hone::test
