// Adapters in every model family.
#include "model/lora.h"

#include "core/base/parallel_for.h"
#include "model/modules.h"
#include "model/token_logprobs.h"
#include "tests/model/chain_loss.h"

namespace hone::test {
namespace {

class LoraTest : public testing::TestWithParam<std::string> {
 protected:
  LoraTest() : device_(cpu_device()), context_(*device_) {
    for (const size_t length : {11, 1, 7})
      sequences_.push_back(random_tokens(length, 19, static_cast<uint32_t>(length)));
  }
  std::vector<BatchPart> parts() const { return {sequences_.begin(), sequences_.end()}; }
  std::unique_ptr<Model> model(const LoraConfig& config = {.r = 3, .lora_alpha = 5, .target_modules = {"all-linear"}}) {
    return make_tiny(context_, tiny_config(GetParam()), true, config);
  }
  std::vector<float> hidden(Model& of) { return hidden_of(context_, of, parts()); }

  std::unique_ptr<Device> device_;
  Context context_;
  std::vector<std::vector<int32_t>> sequences_;
};

TEST_P(LoraTest, GradientOfTheWholeChain) {
  const auto model = this->model();
  ChainLoss loss(context_, *model, parts());
  expect_chain_gradient(loss, *model);
}

TEST_P(LoraTest, GradientOfTheWholeChainWithDropout) {
  const auto model =
      this->model({.r = 2, .lora_alpha = 4, .lora_dropout = 0.4, .use_rslora = true, .target_modules = {"all-linear"}});
  ChainLoss loss(context_, *model, parts());
  for (const Recompute recompute : {Recompute::none, Recompute::full})
    expect_chain_gradient(loss, *model, recompute, DropoutStream{3, 100});
}

// Only q of the first layer: all of the fused module of GPT-2 and Phi-3, the second of two maps of DeepSeek-V3. Other
// parameter slices stay unchanged.
TEST_P(LoraTest, GradientOfOneModule) {
  const auto model = this->model({.r = 2, .target_modules = {R"(.*\.0\..*(q_proj|q_b_proj|qkv_proj|c_attn))"}});
  EXPECT_EQ(model->adapter_params().size(), 2u);
  ChainLoss loss(context_, *model, parts());
  expect_chain_gradient(loss, *model);
}

TEST_P(LoraTest, RecomputationAndThreadsKeepEveryBit) {
  const auto model = this->model({.r = 3, .lora_dropout = 0.3, .target_modules = {"all-linear"}});
  ChainLoss loss(context_, *model, parts());
  const int threads = num_threads();
  loss.gradient(Recompute::none, DropoutStream{1, 0});
  const std::vector<float> expected = download(context_, model->flat_grads());
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    set_num_threads(3);
    loss.gradient(recompute, DropoutStream{1, 0});
    EXPECT_EQ(download(context_, model->flat_grads()), expected);
  }
  set_num_threads(threads);
}

TEST_P(LoraTest, PackingAndDecodingKeepEveryBit) {
  const auto model = this->model();
  std::vector<float> one_by_one;
  for (const BatchPart& part : parts())
    std::ranges::copy(hidden_of(context_, *model, {{part}}), std::back_inserter(one_by_one));
  EXPECT_EQ(hidden(*model), one_by_one);
  TinyCache cache(context_, *model, 1);
  const int64_t ids[] = {0};
  std::vector<float> decoded;
  for (size_t t = 0; t < sequences_[0].size(); ++t) {
    const std::vector<BatchPart> step{{std::span(sequences_[0]).subspan(t, 1), static_cast<int32_t>(t)}};
    std::ranges::copy(hidden_of(context_, *model, step, &cache.view(step, ids)), std::back_inserter(decoded));
  }
  EXPECT_EQ(decoded, hidden_of(context_, *model, {{BatchPart{sequences_[0]}}}));
}

TEST_P(LoraTest, SwitchedOffTheModelIsItsBase) {
  const auto base = make_tiny(context_, tiny_config(GetParam()), false);
  const auto model = this->model();
  const std::vector<float> adapted = hidden(*model);
  EXPECT_NE(adapted, hidden(*base));
  {
    const size_t bytes = device_->used_bytes();
    const AdapterScope off(*model);
    EXPECT_EQ(hidden(*model), hidden(*base));
    EXPECT_EQ(device_->used_bytes(), bytes);
  }
  EXPECT_EQ(hidden(*model), adapted);
}

TEST_P(LoraTest, AFreshAdapterChangesNothing) {
  const auto model = this->model();
  for (const Param* param : model->adapter_params()) initialize_param(context_, *param, 5);
  const std::vector<float> fresh = hidden(*model);
  const AdapterScope off(*model);
  EXPECT_EQ(hidden(*model), fresh);
}

TEST_P(LoraTest, AdapterScopeTakesOtherValues) {
  const auto model = this->model();
  const std::vector<float> adapted = hidden(*model);
  std::vector<std::vector<float>> numbers;
  std::vector<Tensor> values;
  for (const Param* param : model->adapter_params()) {
    numbers.emplace_back(static_cast<size_t>(param->value.size()), 0.1f);
    values.push_back(param->value);
    values.back().data = numbers.back().data();
  }
  std::vector<float> other;
  {
    const AdapterScope scope(*model, values);
    other = hidden(*model);
    const AdapterScope off(*model);
    EXPECT_NE(hidden(*model), other);
  }
  EXPECT_NE(other, adapted);
  EXPECT_EQ(hidden(*model), adapted);
}

TEST_P(LoraTest, MergedItComputesTheSame) {
  for (const bool rslora : {false, true}) {
    const auto model = this->model({.r = 3, .lora_alpha = 5, .use_rslora = rslora, .target_modules = {"all-linear"}});
    const std::vector<float> before = hidden(*model);
    merge_lora(context_, *model);
    EXPECT_EQ(model->lora(), nullptr);
    EXPECT_TRUE(model->adapter_params().empty());
    const std::vector<float> after = hidden(*model);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-5 * (1 + std::fabs(before[i])));
  }
}

TEST_P(LoraTest, OnlyAdaptersHaveGradients) {
  const auto whole = make_tiny(context_, tiny_config(GetParam()));
  const auto model = this->model({.r = 1});
  int64_t trained = 0;
  for (const Param* param : model->params()) {
    EXPECT_EQ(static_cast<bool>(param->grad), param->trainable) << param->slices.front().name;
    if (param->trainable) trained += param->value.size();
  }
  EXPECT_EQ(model->num_params(), whole->num_params() + trained);
  EXPECT_LT(model->flat_grads().bytes(), whole->flat_grads().bytes() / 5);
  for (const Param* param : model->base_params()) EXPECT_FALSE(param->trainable);
}

TEST_P(LoraTest, StartsAsPeftDoes) {
  const auto model = this->model({.r = 4, .target_modules = {"all-linear"}});
  for (const Param* param : model->adapter_params()) initialize_param(context_, *param, 5);
  for (const Linear* linear : model->linear_modules()) {
    for (const float b : linear->lora->b.value.as<float>()) EXPECT_EQ(b, 0);
    const double bound = 1 / std::sqrt(static_cast<double>(linear->weight.shape[1]));
    double squares = 0, sum = 0;
    const std::span<const float> a = linear->lora->a.value.as<float>();
    for (const float x : a) {
      EXPECT_LE(std::fabs(x), bound);
      squares += double{x} * x;
      sum += x;
    }
    const auto count = static_cast<double>(a.size());
    EXPECT_NEAR(sum / count, 0, 4 * bound / std::sqrt(3 * count));
    EXPECT_NEAR(squares / count, bound * bound / 3, bound * bound * 4 * 0.3 / std::sqrt(count));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LoraTest, testing::ValuesIn(families().names()),
                         [](const auto& test) { return test.param; });

// y = W x + scale B A x of one parameter slice, computed in double precision.
TEST(LoraLayer, AddsTheProductOfItsMatrices) {
  const auto device = cpu_device();
  Context context(*device);
  Lora shared;
  shared.config = {.r = 2, .lora_alpha = 3};
  LoraLayer layer(shared, {{"second", 3, 2}}, 4);
  std::vector<float> a = {1, -2, 3, 0.5f, 0, 1, -1, 2}, b = {2, 1, -1, 4}, x = {1, 2, 3, 4}, y(6, 10.0f);
  layer.a.value = host_view(std::span(a)).view({2, 4});
  layer.b.value = host_view(std::span(b)).view({2, 2});
  layer.forward(context, host_view(std::span(y)).view({1, 6}), host_view(std::span(x)).view({1, 4}));
  // A x = (8, 7), B A x = (23, 20), scale 1.5
  EXPECT_EQ(y, (std::vector<float>{10, 10, 10, 10 + 34.5f, 10 + 30, 10}));
}

TEST(LoraErrors, SayWhatIsWrong) {
  const auto device = cpu_device();
  Context context(*device);
  const auto model = make_model(tiny_config("llama"), "test");
  EXPECT_THROW(model->add_lora({}), Error);
  EXPECT_THROW(merge_lora(context, *model), Error);
  EXPECT_THROW(AdapterScope scope(*model), Error);
  model->add_lora({.r = 1});
  EXPECT_THROW(model->add_lora({.r = 1}), Error);
}

}  // namespace
}  // namespace hone::test
