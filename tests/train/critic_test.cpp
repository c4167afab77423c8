#include "train/critic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/rig.h"

namespace hone {
namespace {

using test::make_samples, test::pointers, test::Rig, test::weights_of;

constexpr size_t lengths[] = {7, 12, 3, 9};

// Values are drawn to `returns`; the policy to nothing.
struct Regression : Objective {
  Needs needs() const override { return {.critic = true}; }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    double sum = 0;
    for (size_t t = 0; t < batch[columns::mask].size(); ++t) {
      const double error = batch[columns::mask][t] * (batch[columns::value][t] - batch[columns::returns][t]);
      sum += 0.5 * batch.scale * error * error;
      grad.value[t] = static_cast<float>(batch.scale * error);
      metrics.add("error", error * error, batch[columns::mask][t]);
    }
    return sum;
  }
};

std::vector<Sample> with_returns() {
  std::vector<Sample> samples = make_samples(lengths);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].columns.assign(columns::returns, samples[i].tokens.size(), 0.5f + 0.25f * static_cast<float>(i));
  return samples;
}

TrainerConfig with_trunk(const char* trunk) {
  TrainerConfig config;
  config.critic.trunk = trunk;
  config.micro_batch_tokens = 20;
  return config;
}

class CriticTrunk : public testing::TestWithParam<const char*> {};

TEST_P(CriticTrunk, LearnsWhatStatesAreWorth) {
  Rig rig(with_trunk(GetParam()));
  const std::vector<Sample> samples = with_returns();
  const std::vector<float> policy = weights_of(*rig.model);
  for (const std::vector<float>& values : rig.trainer.values(pointers(samples)))
    for (const float value : values) EXPECT_EQ(value, 0);
  const double first = rig.trainer.step(pointers(samples), Regression(), 0.01).metrics.at("error");
  double last = first;
  for (int i = 0; i < 60; ++i) last = rig.trainer.step(pointers(samples), Regression(), 0.01).metrics.at("error");
  EXPECT_GT(first, 0.5);
  EXPECT_LT(last, 0.02 * first);
  EXPECT_EQ(policy == weights_of(*rig.model),
            rig.trainer.memory().critic > rig.model->flat_values().size());  // a trunk of its own leaves the policy
  // The critic that steps trained is the one that values() asks.
  double squares = 0, tokens = 0;
  const std::vector<std::vector<float>> values = rig.trainer.values(pointers(samples));
  for (size_t i = 0; i < samples.size(); ++i)
    for (size_t t = 0; t < samples[i].columns.find(columns::mask).size(); ++t) {
      squares +=
          samples[i].columns[columns::mask][t] * std::pow(values[i][t] - samples[i].columns[columns::returns][t], 2);
      tokens += samples[i].columns[columns::mask][t];
    }
  EXPECT_LT(squares / tokens, 0.02 * first);
}

TEST_P(CriticTrunk, GradientIsTheLosssOwn) {
  TrainerConfig config = with_trunk(GetParam());
  config.optimizer = Choice<OptimizerSettings>("sgd");
  config.max_grad_norm = 0;
  Rig rig(config);
  const std::vector<Sample> samples = with_returns();
  std::vector<float> head(static_cast<size_t>(rig.model->shape().hidden_size));
  for (size_t i = 0; i < head.size(); ++i) head[i] = i % 2 == 0 ? 0.1f : -0.05f;
  rig.trainer.set_value_head(head);
  EXPECT_EQ(rig.trainer.value_head(), head);
  // A plain step against the gradient lowers the loss by its squared norm times the rate.
  const double rate = 1e-3;
  const StepReport before = rig.trainer.step(pointers(samples), Regression(), rate);
  const StepReport after = rig.trainer.step(pointers(samples), Regression(), 0);
  const auto critic_norm = before.metrics.find("critic/grad_norm");
  const double norm = critic_norm == before.metrics.end() ? before.grad_norm : critic_norm->second;
  EXPECT_EQ(critic_norm != before.metrics.end(), std::string(GetParam()) == "separate");
  EXPECT_GT(norm, 0.1);
  EXPECT_NEAR((before.loss - after.loss) / rate, norm * norm, 0.02 * norm * norm);
  EXPECT_NE(rig.trainer.value_head(), head);
}

TEST_P(CriticTrunk, ResumesBitForBit) {
  const std::vector<Sample> samples = with_returns();
  Rig whole(with_trunk(GetParam())), resumed(with_trunk(GetParam()));
  for (int i = 0; i < 3; ++i) whole.trainer.step(pointers(samples), Regression(), 0.01);
  StateSection section;
  whole.trainer.save_state(section);
  std::ranges::copy(whole.model->flat_values().as<float>(), resumed.model->flat_values().as<float>().begin());
  resumed.trainer.load_state(section);
  const StepReport a = whole.trainer.step(pointers(samples), Regression(), 0.01),
                   b = resumed.trainer.step(pointers(samples), Regression(), 0.01);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(whole.trainer.value_head(), resumed.trainer.value_head());
  EXPECT_EQ(whole.trainer.values(pointers(samples)), resumed.trainer.values(pointers(samples)));
}

INSTANTIATE_TEST_SUITE_P(Both, CriticTrunk, testing::Values("shared", "separate"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Critic, StartsFromARewardModelsFolder) {
  const test::TemporaryFolder folder;
  Rig rewarder;
  std::vector<float> head(static_cast<size_t>(rewarder.model->shape().hidden_size), 0.125f);
  head[1] = -1;
  save_model(rewarder.context, *rewarder.model, folder.path(), DType::f32, JsonObject{}, head);
  TrainerConfig config = with_trunk("separate");
  config.critic.path = folder.path().string();
  Rig rig(config);
  rig.model->initialize(rig.context, 99);
  EXPECT_EQ(rig.trainer.value_head(), head);
  rewarder.trainer.set_value_head(head);
  const std::vector<Sample> samples = with_returns();
  EXPECT_EQ(rig.trainer.values(pointers(samples)), rewarder.trainer.values(pointers(samples)));
  EXPECT_THROW(rig.trainer.set_value_head(std::vector<float>(3)), Error);
}

TEST(Critic, AGradientThatIsNotFiniteLeavesBothModels) {
  struct Infinite : Regression {
    double loss(const TokenBatch&, TokenGrad grad, MetricSums&) const override {
      grad.value.back() = INFINITY;
      return 1;
    }
  };
  Rig rig(with_trunk("separate"));
  const std::vector<Sample> samples = with_returns();
  const std::vector<std::vector<float>> before = rig.trainer.values(pointers(samples));
  EXPECT_THROW(rig.trainer.step(pointers(samples), Infinite(), 0.01), Error);
  EXPECT_EQ(rig.trainer.values(pointers(samples)), before);
}

}  // namespace
}  // namespace hone
