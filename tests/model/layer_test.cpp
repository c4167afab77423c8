// Lists of unlike layers: placements of norms, parallel branches, kinds of sublayers, losses made inside a layer.
#include "model/flops.h"
#include "tests/model/chain_loss.h"
#include "tests/model/layer_models.h"

namespace hone::test {
namespace {

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
  TinyCache cache(context_, *model_, 1);
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

TEST(ActiveShare, CountsWhatATokenIsMultipliedBy) {
  const std::unique_ptr<Model> model = make_model_of({"ps", "ps"});
  const ModelFlops all = count_flops(*model, 16);
  Param& weight = model->linear_modules().back()->weight;
  weight.active_share = 0.25;
  const ModelFlops active = count_flops(*model, 16);
  EXPECT_DOUBLE_EQ(all.active_params - active.active_params, 0.75 * static_cast<double>(weight.num_elements()));
  EXPECT_EQ(all.params, active.params);
  EXPECT_LT(active.train_flops_per_token, all.train_flops_per_token);
}

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
