#include "model/model.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

class ModelTest : public testing::Test {
 protected:
  std::unique_ptr<Model> initialized(const Json& config, uint64_t seed) {
    auto model = make_model(config, "test");
    model->allocate(context_, DType::f32, false);
    model->initialize(context_, seed);
    return model;
  }
  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

std::vector<float> values_named(Model& model, const std::string& name) {
  for (const Param* param : model.params()) {
    int64_t row = 0;
    for (const Param::Slice& block : param->slices) {
      const std::span<const float> values = param->value.rows(row, block.rows).as<float>();
      if (block.name == name) return {values.begin(), values.end()};
      row += block.rows;
    }
  }
  return {};
}

// The initial values of k_proj depend only on seed and name: other heads before it, other layers or other threads
// change nothing.
TEST_F(ModelTest, InitializationDependsOnSeedAndNameAlone) {
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  const std::vector<float> values = values_named(*initialized(tiny_config("llama"), 7), name);
  ASSERT_EQ(values.size(), 144u);
  EXPECT_EQ(values_named(*initialized(with(tiny_config("llama"),
                                           {{"num_attention_heads", 8}, {"num_hidden_layers", 3}, {"vocab_size", 50}}),
                                      7),
                         name),
            values);
  EXPECT_EQ(values_named(*initialized(tiny_config("qwen2"), 7), name), values);
  EXPECT_NE(values_named(*initialized(tiny_config("llama"), 8), name), values);
  const int threads = num_threads();
  set_num_threads(threads == 1 ? 2 : 1);
  EXPECT_EQ(values_named(*initialized(tiny_config("llama"), 7), name), values);
  set_num_threads(threads);
}

TEST_F(ModelTest, InitialValuesAreNormalWithTheConfigsSpread) {
  const auto model = initialized(with(tiny_config("llama"), {{"vocab_size", 4000}, {"initializer_range", 0.05}}), 1);
  const std::vector<float> values = values_named(*model, "model.embed_tokens.weight");
  double mean = 0, square = 0, fourth = 0;
  for (const float value : values) mean += value, square += double{value} * value, fourth += std::pow(double{value}, 4);
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(mean / n, 0, 4 * 0.05 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(square / n), 0.05, 4 * 0.05 / std::sqrt(2 * n));
  EXPECT_NEAR(fourth * n / (square * square), 3, 0.1);  // kurtosis of a normal distribution
  for (const float weight : values_named(*model, "model.norm.weight")) EXPECT_EQ(weight, 1);
}

TEST_F(ModelTest, ParametersLieEndToEndWithZeroGaps) {
  const auto model = make_tiny(context_, tiny_config("qwen2"));
  const std::span<const float> flat = model->flat_values().as<float>();
  std::vector<bool> owned(flat.size());
  int64_t count = 0;
  for (const Param* param : model->params()) {
    const std::ptrdiff_t at = param->value.ptr<float>() - flat.data();
    EXPECT_EQ(at % 64, 0);
    EXPECT_EQ(param->grad.ptr<float>() - model->flat_grads().ptr<float>(), at);
    for (int64_t i = 0; i < param->value.size(); ++i) owned[static_cast<size_t>(at + i)] = true;
    count += param->value.size();
  }
  EXPECT_EQ(count, model->num_params());
  for (size_t i = 0; i < flat.size(); ++i) EXPECT_TRUE(owned[i] || flat[i] == 0) << i;
}

TEST_F(ModelTest, NormsAndBiasesDoNotDecay) {
  const auto model = make_model(tiny_config("gpt2"), "test");
  for (const Param* param : model->params()) EXPECT_EQ(param->decay, param->shape.size() == 2) << param->slices[0].name;
}

}  // namespace
}  // namespace hone::test
