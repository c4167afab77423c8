#include "train/critic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/train/rig.h"

namespace hone {
namespace {

using test::make_samples, test::pointers, test::Rig, test::weights_of;

constexpr size_t lengths[] = {7, 12, 3, 9};

// The loss moves the values towards `returns` and leaves the policy alone.
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

TEST_P(CriticTrunk, FreedActivationsChangeNothing) {
  const std::vector<Sample> samples = with_returns();
  Rig kept(with_trunk(GetParam())), freed(with_trunk(GetParam()));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(kept.trainer.values(pointers(samples)), freed.trainer.values(pointers(samples)));
    const StepReport one = kept.trainer.step(pointers(samples), Regression(), 0.01),
                     other = freed.trainer.step(pointers(samples), Regression(), 0.01);
    EXPECT_EQ(one.metrics, other.metrics);
    EXPECT_EQ(kept.trainer.peak().critic, freed.trainer.peak().critic);
    freed.trainer.free_activations();
    EXPECT_EQ(freed.trainer.memory().activations, 0);
  }
  EXPECT_EQ(weights_of(*kept.model), weights_of(*freed.model));
  EXPECT_EQ(kept.trainer.value_head(), freed.trainer.value_head());
}

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
  // A separate trunk leaves the policy unchanged.
  EXPECT_EQ(policy == weights_of(*rig.model), rig.trainer.memory().critic > rig.model->flat_values().size());
  // values() reads the critic that the steps trained.
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
  // A plain gradient step lowers the loss by the gradient's squared norm times the rate.
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
  Rig uninterrupted(with_trunk(GetParam())), resumed(with_trunk(GetParam()));
  for (int i = 0; i < 3; ++i) uninterrupted.trainer.step(pointers(samples), Regression(), 0.01);
  StateSection section;
  uninterrupted.trainer.save_state(section);
  std::ranges::copy(uninterrupted.model->flat_values().as<float>(), resumed.model->flat_values().as<float>().begin());
  resumed.trainer.load_state(section);
  const StepReport a = uninterrupted.trainer.step(pointers(samples), Regression(), 0.01),
                   b = resumed.trainer.step(pointers(samples), Regression(), 0.01);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(uninterrupted.trainer.value_head(), resumed.trainer.value_head());
  EXPECT_EQ(uninterrupted.trainer.values(pointers(samples)), resumed.trainer.values(pointers(samples)));
}

// Moves the policy, too: each log-prob towards 0.
struct RegressionAndPolicy : Regression {
  Needs needs() const override { return {.entropy = true, .critic = true}; }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    double sum = Regression::loss(batch, grad, metrics);
    for (size_t t = 0; t < batch[columns::mask].size(); ++t) {
      const double weight = batch.scale * batch[columns::mask][t];
      sum -= weight * batch[columns::logp][t];
      grad.logp[t] = static_cast<float>(-weight);
      metrics.add("logp", batch[columns::mask][t] * batch[columns::logp][t], batch[columns::mask][t]);
    }
    return sum;
  }
};

// The policy's tensors of a saved trainer, by name.
std::map<std::string, std::vector<float>> policy_state(const Trainer& trainer) {
  StateSection section;
  trainer.save_state(section);
  std::map<std::string, std::vector<float>> out;
  for (const NamedTensor& named : section.tensors) {
    if (named.name.starts_with("critic.")) continue;
    const std::span<const float> values = named.tensor.as<float>();
    out[named.name].assign(values.begin(), values.end());
  }
  return out;
}

TEST_P(CriticTrunk, AStepOfTheCriticAloneLeavesThePolicyAsItWas) {
  Rig rig(with_trunk(GetParam())), direct(with_trunk(GetParam()));
  const std::vector<Sample> samples = with_returns();
  const RegressionAndPolicy objective;
  const std::vector<float> weights = weights_of(*rig.model);
  rig.trainer.values(pointers(samples));  // makes the critic
  const std::map<std::string, std::vector<float>> state = policy_state(rig.trainer);
  EXPECT_FALSE(state.empty());
  std::vector<Metrics> metrics;
  for (int i = 0; i < 30; ++i) {
    const StepReport report = rig.trainer.step(pointers(samples), objective, 0.01, Updated::critic);
    EXPECT_GT(report.grad_norm, 0);
    metrics.push_back(report.metrics);
    EXPECT_EQ(report.metrics.at("logp"), metrics.front().at("logp"));
  }
  EXPECT_LT(metrics.back().at("error"), 0.5 * metrics.front().at("error"));
  EXPECT_EQ(weights_of(*rig.model), weights);
  EXPECT_EQ(policy_state(rig.trainer), state);
  EXPECT_EQ(rig.trainer.steps_done(), 30);
  // The policy's first update is that of a run without a warm-up, if the critic does not share its gradient.
  const StepReport first = rig.trainer.step(pointers(samples), objective, 0.01),
                   alone = direct.trainer.step(pointers(samples), objective, 0.01);
  EXPECT_NE(weights_of(*rig.model), weights);
  if (std::string(GetParam()) == "separate") {
    EXPECT_EQ(first.grad_norm, alone.grad_norm);
    EXPECT_EQ(weights_of(*rig.model), weights_of(*direct.model));
    EXPECT_EQ(policy_state(rig.trainer), policy_state(direct.trainer));
  }
}

TEST_P(CriticTrunk, AWarmUpResumesBitForBit) {
  const std::vector<Sample> samples = with_returns();
  const RegressionAndPolicy objective;
  Rig uninterrupted(with_trunk(GetParam())), resumed(with_trunk(GetParam()));
  for (int i = 0; i < 3; ++i) uninterrupted.trainer.step(pointers(samples), objective, 0.01, Updated::critic);
  StateSection section;
  uninterrupted.trainer.save_state(section);
  EXPECT_EQ(section.values.at("critic_steps").as_int(), 3);
  resumed.trainer.load_state(section);
  for (const Updated updated : {Updated::critic, Updated::all, Updated::all}) {
    const StepReport a = uninterrupted.trainer.step(pointers(samples), objective, 0.01, updated),
                     b = resumed.trainer.step(pointers(samples), objective, 0.01, updated);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.metrics, b.metrics);
  }
  EXPECT_EQ(weights_of(*uninterrupted.model), weights_of(*resumed.model));
}

// The next stage's optimizer goes on from the updates of the policy.
TEST_P(CriticTrunk, ContinuesFromThePolicysUpdates) {
  const std::vector<Sample> samples = with_returns();
  const RegressionAndPolicy objective;
  Rig warmed(with_trunk(GetParam())), next;
  for (const Updated updated : {Updated::critic, Updated::critic, Updated::all})
    warmed.trainer.step(pointers(samples), objective, 0.01, updated);
  StateSection section;
  warmed.trainer.save_state(section);
  next.trainer.continue_from(section);
  EXPECT_EQ(warmed.trainer.steps_done(), 3);
  EXPECT_EQ(next.trainer.steps_done(), 1);
}

TEST(Critic, AStepOfTheCriticAloneNeedsOne) {
  Rig rig;
  const std::vector<Sample> samples = with_returns();
  EXPECT_THROW(rig.trainer.step(pointers(samples), *make_objective("sft"), 0.01, Updated::critic), Error);
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
