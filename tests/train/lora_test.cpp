// Adapters under the trainer: what is trained, what it takes, and dropout.
#include "model/lora.h"

#include "tests/train/rig.h"

namespace hone {
namespace {

using test::make_samples, test::pointers, test::Rig, test::weights_of;

constexpr size_t lengths[] = {7, 12, 3, 9};
const LoraConfig all_linear{.r = 2, .target_modules = {"all-linear"}};

std::unique_ptr<Objective> make(const char* name) { return make_objective(name); }
std::vector<float> gradients(Rig& rig) {
  const std::span<float> grad = rig.model->flat_grads().as<float>();
  return {grad.begin(), grad.end()};
}

TEST(LoraTrainer, TrainsTheAdaptersAlone) {
  Rig rig({}, "llama", all_linear);
  const auto values = [&](const std::vector<Param*>& params) {
    std::vector<float> out;
    for (const Param* param : params)
      for (const float value : param->value.as<float>()) out.push_back(value);
    return out;
  };
  const std::vector<float> base = values(rig.model->base_params()), adapters = values(rig.model->adapter_params());
  const std::vector<Sample> samples = make_samples(lengths);
  const auto sft = make("sft");
  const double first = rig.trainer.step(pointers(samples), *sft, 0.02).loss;
  double last = first;
  for (int i = 0; i < 150; ++i) last = rig.trainer.step(pointers(samples), *sft, 0.02).loss;
  EXPECT_LT(last, 0.3 * first);
  EXPECT_EQ(values(rig.model->base_params()), base);
  EXPECT_NE(values(rig.model->adapter_params()), adapters);
}

TEST(LoraTrainer, TakesLessMemory) {
  const std::vector<Sample> samples = make_samples(lengths);
  const auto bytes = [&](const LoraConfig& lora) {
    Rig rig({}, "llama", lora);
    rig.trainer.step(pointers(samples), *make("sft"), 0.01);
    return std::pair(static_cast<int64_t>(rig.model->flat_grads().bytes()), rig.trainer.memory().optimizer);
  };
  const auto [grads, states] = bytes({});
  const auto [lora_grads, lora_states] = bytes({.r = 1});
  EXPECT_LT(lora_grads, grads / 5);
  EXPECT_EQ(lora_states, 2 * lora_grads);
  EXPECT_LT(lora_states, states / 5);
}

// One whose gradient depends on the log-probs.
struct Squares : Objective {
  Needs needs() const override { return {}; }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums&) const override {
    double sum = 0;
    for (size_t t = 0; t < batch[columns::logp].size(); ++t) {
      const double weight = batch.scale * batch[columns::mask][t];
      sum += weight * batch[columns::logp][t] * batch[columns::logp][t];
      grad.logp[t] = static_cast<float>(2 * weight * batch[columns::logp][t]);
    }
    return sum;
  }
};

TEST(LoraTrainer, DropoutDoesNotDependOnTheMicroBatches) {
  LoraConfig lora = all_linear;
  lora.lora_dropout = 0.5;
  std::vector<Sample> samples = make_samples(lengths);
  samples[2].columns.assign(columns::mask, samples[2].columns.find(columns::mask).size(),
                            0);  // alone in a micro-batch it is skipped, and counts all the same
  const std::unique_ptr<Objective> sft = make("sft");
  const Squares squares;
  for (const Objective* objective : std::initializer_list<const Objective*>{sft.get(), &squares}) {
    std::vector<std::vector<float>> grads;
    for (const int64_t tokens : {31, 12}) {
      TrainerConfig config;
      config.micro_batch_tokens = tokens;
      Rig rig(config, "llama", lora);
      rig.trainer.step(pointers(samples), *objective, 0);
      grads.push_back(gradients(rig));
    }
    for (size_t i = 0; i < grads[0].size(); ++i)
      ASSERT_NEAR(grads[0][i], grads[1][i], 1e-5 * (1 + std::fabs(grads[0][i]))) << i;
  }
}

TEST(LoraTrainer, DropoutDrawsAnewEachStepAndBySeed) {
  LoraConfig lora = all_linear;
  lora.lora_dropout = 0.5;
  const std::vector<Sample> samples = make_samples(lengths);
  const auto losses = [&](uint64_t seed) {
    Rig rig({}, "llama", lora);
    rig.model->lora()->seed = seed;
    std::vector<double> out;
    for (int i = 0; i < 2; ++i) out.push_back(rig.trainer.step(pointers(samples), *make("sft"), 0).loss);
    return out;
  };
  const std::vector<double> first = losses(1);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(losses(1), first);
  EXPECT_NE(losses(2)[0], first[0]);
}

TEST(LoraTrainer, ResumedContinuesBitForBit) {
  LoraConfig lora = all_linear;
  lora.lora_dropout = 0.2;
  const std::vector<Sample> samples = make_samples(lengths);
  Rig whole({}, "llama", lora), resumed({}, "llama", lora);
  const auto step = [&](Rig& rig) { return rig.trainer.step(pointers(samples), *make("sft"), 0.01).loss; };
  for (int i = 0; i < 3; ++i) step(whole);
  StateSection state;
  whole.trainer.save_state(state);
  std::ranges::copy(weights_of(*whole.model), resumed.model->flat_values().as<float>().begin());
  resumed.trainer.load_state(state);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(whole), step(resumed));
  EXPECT_EQ(weights_of(*whole.model), weights_of(*resumed.model));
}

}  // namespace
}  // namespace hone
