#include "model/prune/importance.h"

#include <cmath>
#include <numeric>

#include "model/layer.h"
#include "model/modules.h"
#include "model/token_logprobs.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

class ImportanceTest : public testing::TestWithParam<const char*> {
 protected:
  ImportanceTest() : device_(cpu_device()), context_(*device_) {
    const JsonObject layers{{"num_hidden_layers", 3}, {"n_layer", 3}};
    model_ = make_tiny(context_, with(tiny_config(GetParam()), layers), false);
    for (const size_t length : {11, 2, 40, 7})
      text_.push_back(random_tokens(length, 19, static_cast<uint32_t>(length)));
  }
  std::vector<LayerImportance> measure() {
    return measure_importance(context_, *model_, text_, [](int64_t) {});
  }
  // Makes a layer add nothing to the residual stream.
  void silence(int64_t layer) {
    for (const size_t i : {1u, 3u}) {
      Linear& linear = *model_->layer_modules(layer).linears[i];
      std::ranges::fill(linear.weight.value.as<float>(), 0.0f);
      if (linear.bias.value) std::ranges::fill(linear.bias.value.as<float>(), 0.0f);
    }
  }
  double perplexity(std::vector<int64_t> layers) { return calibration_perplexity(context_, *model_, text_, layers); }

  std::unique_ptr<Device> device_;
  Context context_;
  std::unique_ptr<Model> model_;
  std::vector<std::vector<int32_t>> text_;
};

TEST_P(ImportanceTest, PerplexityIsThatOfTheLogProbs) {
  double nll = 0, count = 0;
  for (const TokenLogprobs& row : compute_logprobs(context_, *model_, text_, {})) {
    nll -= std::accumulate(row.logp.begin() + 1, row.logp.end(), 0.0);
    count += static_cast<double>(row.logp.size()) - 1;
  }
  EXPECT_NEAR(perplexity({0, 1, 2}), std::exp(nll / count), 1e-9);
}

TEST_P(ImportanceTest, LayerThatAddsNothingHasNoInfluence) {
  silence(1);
  const std::vector<LayerImportance> importance = measure();
  EXPECT_NEAR(importance[1].block_influence, 0, 1e-12);
  EXPECT_GT(importance[0].block_influence, 1e-3);
  EXPECT_GT(importance[2].block_influence, 1e-3);
  EXPECT_EQ(perplexity({0, 2}), perplexity({0, 1, 2}));
}

// The greedy choice is the best of all choices of one layer, and repeats with the others.
TEST_P(ImportanceTest, RemovesTheLayerThatCostsLeast) {
  const GreedyLayers one = remove_layers_by_perplexity(context_, *model_, text_, 2, [](int64_t) {});
  const double best = std::min({perplexity({1, 2}), perplexity({0, 2}), perplexity({0, 1})});
  ASSERT_EQ(one.removals.size(), 1u);
  EXPECT_EQ(one.removals[0].perplexity, best);
  EXPECT_EQ(perplexity(one.kept), best);
  const GreedyLayers two = remove_layers_by_perplexity(context_, *model_, text_, 1, [](int64_t) {});
  ASSERT_EQ(two.removals.size(), 2u);
  EXPECT_EQ(two.removals[0].layer, one.removals[0].layer);
  EXPECT_EQ(two.removals[1].perplexity, std::min(perplexity({one.kept[0]}), perplexity({one.kept[1]})));
}

// The scores from the definition, with the activations of a layer computed one sequence at a time.
TEST_P(ImportanceTest, ScoresAreTheNormsOfActivations) {
  const std::vector<LayerImportance> importance = measure();
  const ModelShape& shape = model_->shape();
  const auto& source = dynamic_cast<const LayerActivationSource&>(*model_);
  std::vector<double> heads(static_cast<size_t>(shape.num_attention_heads)),
      channels(static_cast<size_t>(shape.intermediate_size));
  for (const std::vector<int32_t>& sequence : text_) {
    const ScratchScope scope(context_);
    const int64_t tokens = std::ssize(sequence) - 1;
    const Batch batch =
        pack_batch(context_, context_.scratch(), {{BatchPart{std::span(sequence).first(sequence.size() - 1)}}});
    const Tensor x = context_.scratch().take(DType::f32, {tokens, shape.hidden_size}),
                 out = context_.scratch().take(DType::f32, {tokens, shape.hidden_size});
    model_->embed(context_, batch, x);
    Tape tape(*device_);
    model_->forward_layer(0, context_, {.batch = batch, .tape = &tape}, out, x);
    const LayerActivations inside = source.restore_activations(0, tape);
    const auto add = [&](std::vector<double>& to, Tensor values, int64_t size) {
      for (int64_t p = 0; p < std::ssize(to); ++p) {
        double mean = 0;
        for (int64_t t = 0; t < tokens; ++t) {
          double squares = 0;
          for (int64_t i = 0; i < size; ++i) squares += std::pow(double{values.row<float>(t)[p * size + i]}, 2);
          mean += std::sqrt(squares) / static_cast<double>(tokens);
        }
        to[static_cast<size_t>(p)] += mean * mean;
      }
    };
    add(heads, inside.attn_out, shape.head_dim);
    add(channels, inside.activated, 1);
  }
  for (size_t i = 0; i < heads.size(); ++i) EXPECT_NEAR(importance[0].heads[i], std::sqrt(heads[i]), 1e-6);
  for (size_t i = 0; i < channels.size(); ++i) EXPECT_NEAR(importance[0].channels[i], std::sqrt(channels[i]), 1e-6);
}

TEST_P(ImportanceTest, RefusesTextThatCannotBePredicted) {
  text_ = {{1}};
  EXPECT_TRUE(says(error_of([&] { measure(); }), "2 to 41"));
  text_ = {};
  EXPECT_TRUE(says(error_of([&] { measure(); }), "no calibration text"));
}

INSTANTIATE_TEST_SUITE_P(All, ImportanceTest, testing::Values("gpt2", "llama", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace hone::test
