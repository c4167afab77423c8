#include "train/trainer.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "core/config/config.h"
#include "model/flops.h"
#include "tests/train/rig.h"

namespace hone {
namespace {

using test::make_samples, test::pointers, test::Rig, test::weights_of;

std::unique_ptr<Objective> make(const char* name) { return make_objective(name); }

constexpr size_t lengths[] = {7, 12, 3, 9};

TEST(Trainer, OverfitsATinyBatch) {
  Rig rig;
  const std::vector<Sample> samples = make_samples(lengths);
  const auto sft = make("sft");
  const double first = rig.trainer.step(pointers(samples), *sft, 0.01).loss;
  double last = first;
  for (int i = 0; i < 150; ++i) last = rig.trainer.step(pointers(samples), *sft, 0.01).loss;
  EXPECT_GT(first, 1.5);
  EXPECT_LT(last, 0.05);
}

TEST(Trainer, ReportsTheLearningRateThatTheOptimizerUses) {
  const std::vector<Sample> samples = make_samples(lengths);
  const auto rates = [&](const std::string& keys) {
    TrainerConfig config;
    Config::from_text(keys, "test").read([&](Fields& f) { config.fields(f); });
    Rig rig(config);
    std::vector<double> out;
    for (int step = 0; step < 2; ++step)
      out.push_back(rig.trainer.step(pointers(samples), *make("sft"), 0.5).learning_rate);
    return out;
  };
  EXPECT_EQ(rates("optimizer = \"adafactor\""), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(rates("optimizer = \"adafactor\"\nrelative_step = true"), (std::vector<double>{0.01, 0.01}));
  EXPECT_EQ(rates("optimizer = \"adafactor\"\nrelative_step = true\nwarmup_init = true"),
            (std::vector<double>{1e-6, 2e-6}));
  EXPECT_EQ(rates("optimizer = \"adagrad\"\nlr_decay = 1.0"), (std::vector<double>{0.5, 0.25}));
}

TEST(Trainer, ReportsTheLossThatScoringFinds) {
  Rig rig;
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<std::vector<int32_t>> sequences;
  for (const Sample& sample : samples) sequences.push_back(sample.tokens);
  const std::vector<TokenLogprobs> scores = compute_logprobs(rig.context, *rig.model, sequences, {});
  double sum = 0, count = 0;
  for (size_t s = 0; s < samples.size(); ++s)
    for (size_t t = 0; t < samples[s].tokens.size(); ++t)
      sum -= samples[s].columns[columns::mask][t] * scores[s].logp[t], count += samples[s].columns[columns::mask][t];
  const StepReport report = rig.trainer.step(pointers(samples), *make("sft"), 0);
  EXPECT_DOUBLE_EQ(report.loss, sum * (1 / count));
  EXPECT_EQ(report.num_tokens, 31);
  EXPECT_EQ(report.num_trained_tokens, static_cast<int64_t>(count));
  EXPECT_EQ(report.num_sequences, 4);
}

TEST(Trainer, MeasuresTokenAccuracyOnWhatItTrainsOn) {
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<std::vector<int32_t>> sequences;
  for (const Sample& sample : samples) sequences.push_back(sample.tokens);
  for (const int64_t tokens : {31, 12}) {
    TrainerConfig config;
    config.micro_batch_tokens = tokens;
    Rig rig(config);
    for (int i = 0; i < 12; ++i) rig.trainer.step(pointers(samples), *make("sft"), 0.01);  // some tokens are right
    const std::vector<TokenLogprobs> scores = compute_logprobs(rig.context, *rig.model, sequences, {.hit = true});
    double hits = 0, count = 0;
    for (size_t s = 0; s < samples.size(); ++s)
      for (size_t t = 0; t < samples[s].tokens.size(); ++t)
        if (samples[s].columns[columns::mask][t] != 0) hits += scores[s].hit[t], ++count;
    const StepReport report = rig.trainer.step(pointers(samples), *make("sft"), 0);
    EXPECT_GT(hits, 0);
    EXPECT_LT(hits, count);
    EXPECT_DOUBLE_EQ(report.metrics.at("mean_token_accuracy"), hits / count);
  }
}

TEST(Trainer, CountsTheFlopsOfModelFlopsUtilization) {
  Rig rig;
  const std::vector<Sample> samples = make_samples(lengths);
  double expected = 0;
  for (const size_t length : lengths)
    expected += static_cast<double>(length) *
                count_flops(*rig.model, static_cast<int64_t>(length)).causal_train_flops_per_token;
  EXPECT_NEAR(rig.trainer.step(pointers(samples), *make("sft"), 0).flops, expected, 1e-9 * expected);
}

TEST(Trainer, SplittingIntoMicroBatchesChangesTheGradientByRoundingOnly) {
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<std::vector<float>> grads;
  std::vector<double> losses;
  for (const int64_t tokens : {31, 12}) {
    TrainerConfig config;
    config.micro_batch_tokens = tokens;
    Rig rig(config);
    losses.push_back(rig.trainer.step(pointers(samples), *make("sft"), 0).loss);
    const auto grad = rig.model->flat_grads().as<float>();
    grads.emplace_back(grad.begin(), grad.end());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-12);  // each token's log-prob has the same bits
  for (size_t i = 0; i < grads[0].size(); ++i) ASSERT_NEAR(grads[0][i], grads[1][i], 1e-6) << i;
}

TEST(Trainer, ASampleLongerThanAMicroBatchGivesTheGradientOfAWiderOne) {
  const std::vector<Sample> samples = make_samples(std::array<size_t, 3>{5, 30, 6});
  std::vector<std::vector<float>> grads;
  std::vector<double> losses;
  for (const int64_t tokens : {8192, 12}) {
    TrainerConfig config;
    config.micro_batch_tokens = tokens;
    Rig rig(config);
    for (int step = 0; step < 2; ++step) losses.push_back(rig.trainer.step(pointers(samples), *make("sft"), 0).loss);
    const auto grad = rig.model->flat_grads().as<float>();
    grads.emplace_back(grad.begin(), grad.end());
  }
  EXPECT_NEAR(losses[0], losses[2], 1e-12);
  EXPECT_NEAR(losses[1], losses[3], 1e-12);
  for (size_t i = 0; i < grads[0].size(); ++i) ASSERT_NEAR(grads[0][i], grads[1][i], 1e-6) << i;
}

// The mean log-prob of tokens whose advantage is not zero. Samples with advantage zero are idle.
struct Weighted : Objective {
  Needs needs() const override { return {}; }
  bool has_no_gradient(const Sample& sample) const override {
    return skips && sample.columns[columns::advantage][0] == 0;
  }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums&) const override {
    double sum = 0;
    for (size_t t = 0; t < batch[columns::mask].size(); ++t) {
      const double weight = batch.scale * batch[columns::mask][t] * batch[columns::advantage][t];
      sum -= weight * batch[columns::logp][t];
      grad.logp[t] = static_cast<float>(-weight);
    }
    return sum;
  }
  bool skips = true;
};

TEST(Trainer, IdleSamplesCostNothingAndChangeNothing) {
  TrainerConfig config;
  config.micro_batch_tokens = 12;  // one sample in each micro-batch
  std::vector<Sample> samples = make_samples(lengths);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].columns.assign(columns::advantage, samples[i].tokens.size(), i % 2 == 0 ? 0.f : 1.f);
  Rig all(config), some(config);
  Weighted counts_all;
  counts_all.skips = false;
  const StepReport a = all.trainer.step(pointers(samples), counts_all, 0.01),
                   b = some.trainer.step(pointers(samples), Weighted(), 0.01);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(weights_of(*all.model), weights_of(*some.model));
  EXPECT_EQ(b.num_tokens, 31);
  EXPECT_EQ(b.num_trained_tokens, 10 + 7);
  EXPECT_EQ(b.num_sequences, 4);
  for (Sample& sample : samples) std::ranges::fill(sample.columns[columns::advantage], 0.f);
  const StepReport nothing = some.trainer.step(pointers(samples), Weighted(), 0.01);
  EXPECT_EQ(nothing.loss, 0);
  EXPECT_EQ(nothing.grad_norm, 0);
  EXPECT_EQ(some.trainer.steps_done(), 2);
}

// Counts the tokens that loss() sees: TRL's entropy and clip fractions are means over all completions, including those
// without an advantage.
struct Measured : Weighted {
  Needs needs() const override { return {.entropy = true}; }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    for (size_t t = 0; t < batch[columns::mask].size(); ++t)
      if (batch[columns::mask][t] != 0)
        metrics.add("entropy", batch[columns::entropy][t], 1), metrics.add("logp", batch[columns::logp][t], 1),
            metrics.add("tokens", 1, 0.125);
    return Weighted::loss(batch, grad, metrics);
  }
};

TEST(Trainer, WhatIsMeasuredIsMeasuredOfIdleSamplesToo) {
  TrainerConfig config;
  config.micro_batch_tokens = 12;
  config.temperature = 0.7;
  std::vector<Sample> samples = make_samples(lengths);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].columns.assign(columns::advantage, samples[i].tokens.size(), i % 2 == 0 ? 0.f : 1.f);
  clear_mask(samples.emplace_back(samples[0]));  // a sample without tokens to measure
  Rig all(config), some(config);
  Measured measures_all, skips;
  measures_all.skips = false;
  const StepReport a = all.trainer.step(pointers(samples), measures_all, 0.01),
                   b = some.trainer.step(pointers(samples), skips, 0.01);
  EXPECT_EQ(weights_of(*all.model), weights_of(*some.model));
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(b.num_trained_tokens, 10 + 7);
  EXPECT_NEAR(a.metrics.at("entropy"), b.metrics.at("entropy"), 1e-9);
  EXPECT_NEAR(a.metrics.at("logp"), b.metrics.at("logp"), 1e-9);
  for (Sample& sample : samples) std::ranges::fill(sample.columns[columns::advantage], 0.f);
  EXPECT_GT(some.trainer.step(pointers(samples), skips, 0.01).metrics.at("entropy"), 0)
      << "of a step in which nothing is learned";
}

TEST(Trainer, GivesTheSameBitsWithOneAndTwoThreads) {
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<std::vector<float>> weights;
  std::vector<Metrics> metrics;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    Rig rig;
    for (int i = 0; i < 3; ++i) metrics.push_back(rig.trainer.step(pointers(samples), *make("sft"), 0.01).metrics);
    weights.push_back(weights_of(*rig.model));
  }
  EXPECT_EQ(weights[0], weights[1]);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(metrics[i], metrics[i + 3]);
}

TEST(Trainer, RecomputingBlocksChangesNothing) {
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<std::vector<float>> weights;
  for (const char* recompute : {"none", "full"}) {
    TrainerConfig config;
    config.recompute = recompute;
    Rig rig(config);
    for (int i = 0; i < 3; ++i) rig.trainer.step(pointers(samples), *make("sft"), 0.01);
    weights.push_back(weights_of(*rig.model));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(Trainer, ClipsTheGlobalNorm) {
  const std::vector<Sample> samples = make_samples(lengths);
  TrainerConfig config;
  config.optimizer = Choice<OptimizerSettings>("sgd");
  config.max_grad_norm = 0.01;
  Rig rig(config);
  const std::vector<float> before = weights_of(*rig.model);
  const StepReport report = rig.trainer.step(pointers(samples), *make("sft"), 1);
  double grad = 0, moved = 0;
  for (const float g : rig.model->flat_grads().as<float>()) grad += double{g} * g;
  const std::vector<float> after = weights_of(*rig.model);
  for (size_t i = 0; i < before.size(); ++i) moved += std::pow(double{after[i]} - before[i], 2);
  EXPECT_NEAR(report.grad_norm, std::sqrt(grad), 1e-5);
  EXPECT_GT(report.grad_norm, 0.1);
  EXPECT_NEAR(std::sqrt(moved), 0.01, 1e-4);
}

TEST(Trainer, ZLossPullsTheLogSumExpTowardsZero) {
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<double> norms;
  for (const double z_loss : {0.0, 0.1}) {
    TrainerConfig config;
    config.z_loss = z_loss;
    Rig rig(config);
    norms.push_back(rig.trainer.step(pointers(samples), *make("sft"), 0).grad_norm);
  }
  EXPECT_GT(std::abs(norms[1] - norms[0]), 1e-3);
}

TEST(Trainer, SamplesThatCannotBeTrainedOnAreNamed) {
  TrainerConfig config;
  config.micro_batch_tokens = 16;
  Rig rig(config);
  const auto message = [&](const Sample& bad) -> std::string {
    std::vector<Sample> samples = make_samples(lengths);
    samples[2] = bad;
    try {
      rig.trainer.step(pointers(samples), *make("sft"), 0.01);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto sample = [](size_t length) {
    Sample out;
    out.tokens.assign(length, 1), out.columns.assign(columns::mask, length, 1);
    out.columns[columns::mask][0] = 0;
    return out;
  };
  EXPECT_EQ(message(sample(16)), "");
  EXPECT_EQ(message(sample(17)), "") << "a micro-batch of its own";
  EXPECT_NE(message(sample(41)).find("40 positions"), std::string::npos) << message(sample(41));
  Sample foreign = sample(5), first = sample(5), ragged = sample(5);
  foreign.tokens[3] = 19, first.columns[columns::mask][0] = 1;
  ragged.columns.truncate(ragged.tokens.size() - 1);
  EXPECT_NE(message(foreign).find("sample 2 has token 19"), std::string::npos);
  EXPECT_NE(message(first).find("first token"), std::string::npos);
  EXPECT_NE(message(ragged).find("mask of 4"), std::string::npos);
  Sample partial = sample(5);
  partial.columns.assign(columns::behavior_logp, 5, -1);
  EXPECT_NE(message(partial).find("behavior_logp"), std::string::npos);
}

TEST(Trainer, AStepWithoutSamplesIsAnError) { EXPECT_THROW(Rig().trainer.step({}, *make("sft"), 0.1), Error); }

TEST(Trainer, AllocatesNothingOnceItHasSeenItsLargestBatch) {
  Rig rig;
  const std::vector<Sample> samples = make_samples(lengths);
  rig.trainer.step(pointers(samples), *make("sft"), 0.01);
  const size_t scratch = rig.context.scratch().capacity_bytes();
  const int64_t activations = rig.trainer.memory().activations;
  const std::vector<const Sample*> all = pointers(samples);
  for (const size_t count : {4, 1, 3, 4}) rig.trainer.step(std::span(all).first(count), *make("sft"), 0.01);
  EXPECT_EQ(rig.context.scratch().capacity_bytes(), scratch);
  EXPECT_EQ(rig.trainer.memory().activations, activations);
}

TEST(Trainer, FreedActivationsAreAllocatedAgainAndChangeNothing) {
  const std::vector<Sample> samples = make_samples(lengths);
  const std::vector<const Sample*> all = pointers(samples);
  Rig kept, freed;
  size_t rest = 0;  // what stays
  for (const size_t count : {2, 4, 1, 4}) {
    kept.trainer.step(std::span(all).first(count), *make("sft"), 0.01);
    freed.trainer.step(std::span(all).first(count), *make("sft"), 0.01);
    EXPECT_EQ(weights_of(*kept.model), weights_of(*freed.model));
    EXPECT_EQ(kept.trainer.memory().activations, freed.trainer.memory().activations);
    const size_t used = freed.device->used_bytes();
    freed.trainer.free_activations();
    EXPECT_EQ(freed.trainer.memory().activations, 0);
    EXPECT_LT(freed.device->used_bytes(), used);
    const size_t stays = freed.device->used_bytes() - freed.context.scratch().capacity_bytes();
    EXPECT_EQ(used - freed.device->used_bytes(), static_cast<size_t>(kept.trainer.memory().activations));
    EXPECT_EQ(stays, rest == 0 ? stays : rest);
    rest = stays;
    freed.trainer.free_activations();
  }
  EXPECT_EQ(kept.trainer.peak().tape, freed.trainer.peak().tape);
}

TEST(Trainer, ABatchWithNothingToTrainOnMovesNothing) {
  TrainerConfig config;
  config.optimizer = Choice<OptimizerSettings>("sgd");
  Rig rig(config);
  std::vector<Sample> samples = make_samples(lengths);
  for (Sample& sample : samples) std::ranges::fill(sample.columns[columns::mask], 0.f);
  const std::vector<float> before = weights_of(*rig.model);
  const StepReport report = rig.trainer.step(pointers(samples), *make("sft"), 0.1);
  EXPECT_EQ(report.loss, 0);
  EXPECT_EQ(report.grad_norm, 0);
  EXPECT_EQ(before, weights_of(*rig.model));
}

// The weights' gradient after a step with learning rate 0.
std::vector<float> gradient_of(Rig& rig, const std::vector<Sample>& samples) {
  rig.trainer.step(pointers(samples), *make("sft"), 0);
  const std::span<float> grads = rig.model->flat_grads().as<float>();
  return {grads.begin(), grads.end()};
}

TEST(Trainer, PackedSamplesDoNotSeeEachOther) {
  for (size_t silent = 0; silent < std::size(lengths); ++silent) {  // this sample is not trained on
    std::vector<Sample> samples = make_samples(lengths);
    std::ranges::fill(samples[silent].columns[columns::mask], 0.0f);
    Rig rig;
    const std::vector<float> before = gradient_of(rig, samples);
    for (int32_t& id : samples[silent].tokens) id = (id + 5) % 19;
    EXPECT_EQ(gradient_of(rig, samples), before);
  }
}

TrainerConfig noisy_config(int64_t micro_batch_tokens = 8192) {
  TrainerConfig config;
  config.optimizer = Choice<OptimizerSettings>("sgd"), config.micro_batch_tokens = micro_batch_tokens;
  config.neftune_noise_alpha = 5, config.noise_seed = 3;
  return config;
}

TEST(Trainer, NoiseOnEmbeddingsDependsOnSeedAndStepAndNotOnTheSplit) {
  const auto sft = make("sft");
  const auto losses = [&](const TrainerConfig& config) {
    Rig rig(config);
    std::vector<double> out;
    for (int i = 0; i < 2; ++i) out.push_back(rig.trainer.step(pointers(make_samples(lengths)), *sft, 0).loss);
    return out;
  };
  TrainerConfig silent = noisy_config(), seeded = noisy_config();
  silent.neftune_noise_alpha = 0, seeded.noise_seed = 4;
  const std::vector<double> whole = losses(noisy_config()), split = losses(noisy_config(12));
  EXPECT_NE(whole[0], whole[1]);
  EXPECT_NE(whole[0], losses(seeded)[0]);
  EXPECT_NE(whole[0], losses(silent)[0]);
  EXPECT_EQ(losses(silent)[0], losses(silent)[1]);
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(whole[i], split[i], 1e-6);
}

TEST(Trainer, TheGradientPassesThroughTheNoise) {
  Rig rig(noisy_config());
  const std::vector<float> gradient = gradient_of(rig, make_samples(lengths));
  const std::span<float> values = rig.model->flat_values().as<float>();
  const std::vector<float> start(values.begin(), values.end());
  double squares = 0;
  for (const float g : gradient) squares += double{g} * g;
  const double step = 0.002 / std::sqrt(squares);
  const auto at = [&](double sign) {  // with the noise of the first step
    for (size_t i = 0; i < start.size(); ++i) values[i] = static_cast<float>(start[i] + sign * step * gradient[i]);
    Trainer fresh(rig.context, *rig.model, noisy_config());
    return fresh.step(pointers(make_samples(lengths)), *make("sft"), 0).loss;
  };
  EXPECT_NEAR((at(1) - at(-1)) / (2 * step), squares, 0.01 * squares);
}

TEST(Trainer, NoiseGoesOnWhereARunThatWasKilledLeftIt) {
  const auto sft = make("sft");
  Rig whole(noisy_config()), resumed(noisy_config());
  whole.trainer.step(pointers(make_samples(lengths)), *sft, 0);
  StateSection section;
  whole.trainer.save_state(section);
  resumed.trainer.load_state(section);
  EXPECT_EQ(whole.trainer.step(pointers(make_samples(lengths)), *sft, 0).loss,
            resumed.trainer.step(pointers(make_samples(lengths)), *sft, 0).loss);
}

}  // namespace
}  // namespace hone
