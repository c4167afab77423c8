// The trainer under objectives that need more than log-probs.
#include <cmath>
#include <limits>

#include "core/io/jsonl.h"
#include "model/token_logprobs.h"
#include "tests/train/rig.h"
#include "train/held_out.h"

namespace hone {
namespace {

using test::make_samples, test::pointers, test::Rig, test::weights_of;

std::unique_ptr<Objective> make(const char* name) { return make_objective(name); }

constexpr size_t lengths[] = {7, 12, 3, 9};

// Samples with every column that an objective with a critic reads; the trainer computes values.
std::vector<Sample> make_experience(Trainer& trainer) {
  std::vector<Sample> samples = make_samples(lengths);
  for (size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = samples[i];
    const size_t n = sample.tokens.size();
    sample.columns.assign(columns::behavior_logp, n, -2.5f), sample.columns.assign(columns::reference_logp, n, -2.6f);
    sample.columns.assign(columns::advantage, n, i % 2 == 0 ? 1.f : -1.f),
        sample.columns.assign(columns::returns, n, 0.25f * static_cast<float>(i));
  }
  const std::vector<std::vector<float>> values = trainer.values(pointers(samples));
  for (size_t i = 0; i < samples.size(); ++i) samples[i].columns.set(columns::old_value, values[i]);
  return samples;
}

TEST(Trainer, ResumedIsUninterruptedBitForBit) {
  for (const char* optimizer : {"adamw", "rmsprop"}) {
    TrainerConfig config;
    config.optimizer = Choice<OptimizerSettings>(optimizer);
    config.micro_batch_tokens = 20;
    const auto ppo = make("ppo");
    Rig whole(config), resumed(config);
    const auto train = [&](Trainer& trainer, int steps) {
      StepReport report;
      for (int i = 0; i < steps; ++i) {
        const std::vector<Sample> samples = make_experience(trainer);
        report = trainer.step(pointers(samples), *ppo, 0.01);
      }
      return report;
    };
    train(whole.trainer, 3);
    StateSection section;
    whole.trainer.save_state(section);
    std::ranges::copy(whole.model->flat_values().as<float>(), resumed.model->flat_values().as<float>().begin());
    resumed.trainer.load_state(section);
    EXPECT_EQ(resumed.trainer.steps_done(), 3);
    const StepReport a = train(whole.trainer, 3), b = train(resumed.trainer, 3);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
    EXPECT_EQ(a.metrics, b.metrics);
    EXPECT_EQ(weights_of(*whole.model), weights_of(*resumed.model));
  }
}

TEST(Trainer, TheCriticLearnsWhatStatesAreWorth) {
  Rig rig;
  const auto ppo = make("ppo");
  const auto error = [&] {
    double sum = 0;
    for (const Sample& sample : make_experience(rig.trainer))
      for (size_t t = 0; t < sample.tokens.size(); ++t)
        sum += sample.columns[columns::mask][t] *
               std::pow(sample.columns[columns::old_value][t] - sample.columns[columns::returns][t], 2);
    return sum;
  };
  const double before = error();
  for (int i = 0; i < 100; ++i) {
    std::vector<Sample> samples = make_experience(rig.trainer);
    for (Sample& sample : samples) std::ranges::fill(sample.columns[columns::advantage], 0.f);
    rig.trainer.step(pointers(samples), *ppo, 0.01);
  }
  EXPECT_GT(before, 0.5);
  EXPECT_LT(error(), 0.1 * before);
}

TEST(Trainer, ALossThatIsNotFiniteStopsWithTheBatchSavedAndTheWeightsUntouched) {
  const test::TemporaryFolder folder;
  const std::filesystem::path dump = folder.path() / "bad_batch.jsonl";
  Rig rig;
  rig.trainer.dump_to(dump);
  std::vector<Sample> samples = make_experience(rig.trainer);
  samples[1].columns[columns::advantage][5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before = weights_of(*rig.model);
  try {
    rig.trainer.step(pointers(samples), *make("grpo"), 0.01);
    FAIL() << "a NaN loss was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("step 1: the loss is nan"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(dump.string()), std::string::npos) << error.what();
  }
  EXPECT_EQ(before, weights_of(*rig.model));
  EXPECT_EQ(rig.trainer.steps_done(), 0);
  std::vector<int64_t> lengths_saved;
  read_jsonl(dump, [&](const Json& row, int64_t) {
    lengths_saved.push_back(static_cast<int64_t>(row.at("tokens").as_array().size()));
  });
  EXPECT_EQ(lengths_saved, (std::vector<int64_t>{7, 12, 3, 9}));
  samples[1].columns[columns::advantage][5] = 0;
  EXPECT_TRUE(std::isfinite(rig.trainer.step(pointers(samples), *make("grpo"), 0.01).loss));
}

// Truncated completions are masked; with a z-loss none of them is left out of the step.
TEST(Trainer, AnEntropyBonusTrainsBesideAMicroBatchWithoutTrainedTokens) {
  TrainerConfig config;
  config.z_loss = 1e-3, config.micro_batch_tokens = 12;
  Rig rig(config);
  std::vector<Sample> samples = make_experience(rig.trainer);
  std::ranges::fill(samples[1].columns[columns::mask], 0.f);
  const auto settings = objectives().at("grpo")();
  Config::from_text("entropy_coef = 0.01", "test").read([&](Fields& f) { settings->fields(f); });
  const StepReport report = rig.trainer.step(pointers(samples), *settings->make({}), 0.01);
  EXPECT_TRUE(std::isfinite(report.loss));
  EXPECT_GT(report.metrics.at("entropy"), 0);
}

// Token accuracy of the chosen completions, entropy of both, as TRL's DPOTrainer.
TEST(Trainer, PairsAreMeasuredAsInTrl) {
  std::vector<Sample> samples = make_samples(lengths);
  std::vector<std::vector<int32_t>> sequences;
  for (Sample& sample : samples) {
    sample.columns.assign(columns::reference_logp, sample.tokens.size(), -2.6f);
    sequences.push_back(sample.tokens);
  }
  for (const int64_t tokens : {31, 20}) {
    TrainerConfig config;
    config.micro_batch_tokens = tokens;
    Rig rig(config);
    for (int i = 0; i < 12; ++i) rig.trainer.step(pointers(samples), *make_objective("sft"), 0.01);
    const std::vector<TokenLogprobs> scores =
        compute_logprobs(rig.context, *rig.model, sequences, {.entropy = true, .hit = true});
    double hits = 0, chosen = 0, entropy = 0, all = 0;
    for (size_t s = 0; s < samples.size(); ++s)
      for (size_t t = 0; t < samples[s].tokens.size(); ++t) {
        if (samples[s].columns[columns::mask][t] == 0) continue;
        entropy += scores[s].entropy[t], ++all;
        if (s % 2 == 0) hits += scores[s].hit[t], ++chosen;
      }
    const Metrics held =
        measure_loss(rig.context, *rig.model, rig.trainer, 1, pointers(samples), *make_objective("dpo"));
    const Metrics metrics = rig.trainer.step(pointers(samples), *make_objective("dpo"), 0).metrics;
    for (const Metrics& found : {metrics, held}) {
      EXPECT_DOUBLE_EQ(found.at("mean_token_accuracy"), hits / chosen);
      EXPECT_NEAR(found.at("entropy"), entropy / all, 1e-9);
    }
    EXPECT_NE(hits / chosen, 0);
  }
}

// An objective with a finite loss and a gradient that is not finite.
struct InfiniteGradient : Objective {
  Needs needs() const override { return {}; }
  double loss(const TokenBatch&, TokenGrad grad, MetricSums&) const override {
    grad.logp.back() = std::numeric_limits<float>::infinity();
    return 1;
  }
};

TEST(Trainer, AGradientThatIsNotFiniteLeavesTheWeights) {
  Rig rig;
  const std::vector<Sample> samples = make_samples(lengths);
  const std::vector<float> before = weights_of(*rig.model);
  EXPECT_THROW(rig.trainer.step(pointers(samples), InfiniteGradient(), 0.01), Error);
  EXPECT_EQ(before, weights_of(*rig.model));
}

}  // namespace
}  // namespace hone
