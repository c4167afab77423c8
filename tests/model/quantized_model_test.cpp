#include "model/quantized_model.h"

#include <cmath>

#include "kernels/quant/quant_format.h"
#include "model/modules.h"
#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i) out = std::max(out, std::fabs(static_cast<double>(a[i]) - b[i]));
  return out;
}

class QuantizedModelTest : public testing::TestWithParam<std::string> {
 protected:
  QuantizedModelTest() : device(cpu_device()), context(*device) {}
  // The hidden states of one sequence.
  std::vector<float> hidden(Model& model) {
    const std::vector<int32_t> tokens = random_tokens(11, 19, 1);
    const BatchPart part{tokens};
    return hidden_of(context, model, {&part, 1});
  }
  // Sets the model's matrices to the values of the quantized copies.
  static void round_to(Model& model, Model& quantized) {
    const std::vector<Linear*> linear_modules = model.linear_modules(), copies = quantized.linear_modules();
    ASSERT_EQ(copies.size(), linear_modules.size());
    for (size_t i = 0; i < copies.size(); ++i) {
      const QuantizedMatrix& q = copies[i]->quantized;
      if (copies[i]->keeps_dtype) continue;
      with_format(q.format, [&]<class Format>(Format) {
        for (int64_t n = 0; n < q.values.dim(0); ++n)
          for (int64_t k = 0; k < q.values.dim(1); ++k)
            linear_modules[i]->weight.value.row<float>(n)[k] =
                Format::decode(q.values.row<uint8_t>(n)[k]) * q.scales.ptr<float>()[n];
      });
    }
  }
  std::unique_ptr<Device> device;
  Context context;
};

// It computes the same as a model with the copies' values, and the source model is unchanged.
TEST_P(QuantizedModelTest, ComputesWithTheNumbersOfTheCopies) {
  const Json config = tiny_config(GetParam());
  const auto source = make_tiny(context, config), rounded = make_tiny(context, config);
  const std::vector<float> exact = hidden(*source), weights = download(context, source->flat_values());
  for (const std::string& format : quant_formats().names()) {
    QuantizedModel quantized(context, *source, quant_formats().at(format));
    round_to(*rounded, quantized.model());
    const std::vector<float> got = hidden(quantized.model());
    EXPECT_LT(largest_difference(got, hidden(*rounded)), 1e-4) << format;
    EXPECT_GT(largest_difference(got, exact), 1e-3) << format;
  }
  EXPECT_EQ(hidden(*source), exact);
  EXPECT_EQ(download(context, source->flat_values()), weights);
}

TEST_P(QuantizedModelTest, FollowsTheWeightsOnUpdate) {
  const Json config = tiny_config(GetParam());
  const auto source = make_tiny(context, config);
  QuantizedModel quantized(context, *source, QuantFormat::int8);
  const std::vector<float> before = hidden(quantized.model());
  source->initialize(context, 8);
  quantized.refresh();
  const std::vector<float> after = hidden(quantized.model());
  EXPECT_NE(after, before);
  EXPECT_EQ(after, hidden(QuantizedModel(context, *source, QuantFormat::int8).model()));
}

TEST_P(QuantizedModelTest, AdaptersAreAddedAsTheyAre) {
  const Json config = tiny_config(GetParam());
  const LoraConfig lora{.r = 2, .lora_alpha = 4, .target_modules = {"all-linear"}};
  const auto source = make_tiny(context, config, false, lora), rounded = make_tiny(context, config, false, lora);
  QuantizedModel quantized(context, *source, QuantFormat::int8);
  round_to(*rounded, quantized.model());
  EXPECT_LT(largest_difference(hidden(quantized.model()), hidden(*rounded)), 1e-4);
  const std::vector<float> with = hidden(quantized.model());
  for (Param* param : source->adapter_params())
    for (float& value : param->value.as<float>()) value += 0.1f;
  EXPECT_NE(hidden(quantized.model()), with);
}

// With SourceWeights::free the source's matrices are freed, and copies of one byte per number replace them.
TEST_P(QuantizedModelTest, TakesThePlaceOfItsSource) {
  const Json config = tiny_config(GetParam());
  const LoraConfig lora{.r = 2, .lora_alpha = 4, .target_modules = {"all-linear"}};
  for (const bool adapted : {false, true}) {
    const auto source = make_tiny(context, config, false, adapted ? lora : LoraConfig());
    const std::vector<float> expected = hidden(QuantizedModel(context, *source, QuantFormat::int8).model());
    size_t matrices = 0;
    for (const Linear* linear : source->linear_modules())
      if (!linear->keeps_dtype) matrices += linear->weight.value.bytes();
    const size_t before = device->used_bytes();
    QuantizedModel quantized(context, *source, QuantFormat::int8, QuantizedModel::SourceWeights::free);
    EXPECT_EQ(hidden(quantized.model()), expected);
    EXPECT_LE(device->used_bytes(), before - matrices + quantized.bytes() + 4096);
    EXPECT_EQ(source->flat_values().data, quantized.model().flat_values().data);
    EXPECT_THROW(quantized.refresh(), Error);
    EXPECT_EQ(hidden(quantized.model()), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, QuantizedModelTest, testing::ValuesIn(families().names()),
                         [](const auto& tested) { return tested.param; });

TEST(QuantizedModelBytes, AreOneANumberAndTheScales) {
  const auto device = devices().at("meta")(0);
  Context context(*device);
  for (const char* family : {"llama", "qwen3_moe"}) {
    const auto model = make_model(tiny_config(family), "test");
    model->allocate(context, DType::bf16, false);
    const QuantizedModel quantized(context, *model, QuantFormat::fp8);
    size_t numbers = 0, rows = 0;
    for (const Linear* linear : model->linear_modules()) {
      numbers += static_cast<size_t>(linear->weight.value.size());
      rows += static_cast<size_t>(linear->num_outputs());
    }
    EXPECT_GE(quantized.bytes(), numbers + 4 * rows);
    EXPECT_LE(quantized.bytes(), numbers + 4 * rows + 512 * model->linear_modules().size());
    const size_t others = model->flat_values().bytes() - 2 * numbers;
    QuantizedModel alone(context, *model, QuantFormat::fp8, QuantizedModel::SourceWeights::free);
    EXPECT_LE(model->flat_values().bytes(), others);
    for (const Linear* linear : alone.model().linear_modules())
      EXPECT_TRUE(!linear->weight.value &&
                  linear->weight.value.dtype == DType::bf16);  // activations have this dtype too
  }
}

// Experts are copied, routers are not: the choice of experts stays that of the source.
TEST(QuantizedModelOfExperts, HasBytesForExpertsAndTheRoutersOfTheSource) {
  const auto device = cpu_device();
  Context context(*device);
  const auto source = make_tiny(context, tiny_config("qwen2_moe"), false);
  const QuantizedModel quantized(context, *source, QuantFormat::int8, QuantizedModel::SourceWeights::free);
  int64_t experts = 0;
  for (const Linear* linear : source->linear_modules()) {
    experts += linear->num_experts > 1;
    EXPECT_FALSE(linear->weight.value);
  }
  EXPECT_EQ(experts, 2 * source->shape().num_layers);
  int64_t routers = 0;
  for (const Param* param : source->base_params())
    if (param->slices[0].name.ends_with("mlp.gate.weight")) {
      EXPECT_TRUE(param->value && param->value.dtype == DType::f32);
      ++routers;
    }
  EXPECT_EQ(routers, source->shape().num_layers);
}

}  // namespace
}  // namespace hone::test
