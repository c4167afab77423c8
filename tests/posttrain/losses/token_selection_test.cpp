// What is decided about tokens and rewards over a rollout batch before its epochs: rejection, top entropy, the length
// penalty. Numbers of TRL and verl are in policy_golden_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/rng.h"
#include "core/config/config.h"
#include "posttrain/losses/policy_loss.h"
#include "tests/data/entries.h"

namespace hone {
namespace {

using test::entries;

Sample sample_of(std::vector<float> mask) {
  Sample out;
  out.tokens.resize(mask.size());
  out.columns.set(columns::mask, std::move(mask));
  return out;
}

// A trajectory of two turns: the tokens of its environment (mask 0) are far off and must not count.
Sample trajectory(std::vector<float> differences) {
  Sample out = sample_of({0, 1, 1, 0, 0, 1});
  out.columns.assign(columns::behavior_logp, 6, -1);
  out.columns.set(columns::old_logp, {5, -1 + differences[0], -1 + differences[1], 9, -9, -1 + differences[2]});
  return out;
}

std::string problem_of(const std::string& toml) {
  try {
    Config::from_text(toml, "recipe.toml").as<RejectionSampling>();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Rejection, TakesOutSequencesByTheGeometricMeanOfTheirRatios) {
  std::vector<Group> groups(1);
  groups[0].samples = {trajectory({1, -0.75f, -0.25f}), trajectory({0.5f, 0.5f, 0.5f}), trajectory({0, 0, -0.5f})};
  groups[0].samples.push_back(sample_of({0, 0}));  // a sample without a score
  groups[0].samples[3].columns.assign(columns::behavior_logp, 2, -1);
  groups[0].samples[3].columns.assign(columns::old_logp, 2, -5);
  MetricSums metrics;
  RejectionSampling{.rollout_rs = {"seq_mean_k1"}, .rollout_rs_threshold = {"0.8_1.25"}}.reject(groups, metrics);
  EXPECT_EQ(entries(groups[0].samples[0], columns::mask), (std::vector<float>{0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(entries(groups[0].samples[1], columns::mask), std::vector<float>(6, 0)) << "its mean ratio is exp(0.5)";
  EXPECT_EQ(entries(groups[0].samples[2], columns::mask), (std::vector<float>{0, 1, 1, 0, 0, 1}));
  const Metrics means = metrics.means();
  EXPECT_NEAR(means.at("rollout_corr/rollout_rs_masked_fraction"), 1.0 / 3, 1e-12);
  EXPECT_NEAR(means.at("rollout_corr/rollout_rs_seq_masked_fraction"), 1.0 / 3, 1e-12);
  EXPECT_NEAR(means.at("rollout_corr/rollout_rs_seq_mean_k1_min"), -0.5, 1e-12);
  EXPECT_NEAR(means.at("rollout_corr/rollout_rs_seq_mean_k1_max"), 0.5 / 3, 1e-12);
}

TEST(Rejection, OfTokensLeavesTheOthers) {
  std::vector<Group> groups(1);
  groups[0].samples = {trajectory({1, -0.1f, -3})};
  MetricSums metrics;
  RejectionSampling{.rollout_rs = {"token_k1"}, .rollout_rs_threshold = {"2"}}.reject(groups, metrics);
  EXPECT_EQ(entries(groups[0].samples[0], columns::mask), (std::vector<float>{0, 0, 1, 0, 0, 0}));
}

// The learner's own completions have the sampler's bits: nothing is rejected, whatever the bounds.
TEST(Rejection, NothingIsRejectedOnPolicy) {
  std::vector<Group> groups(1);
  groups[0].samples = {trajectory({0, 0, 0})};
  for (const char* criterion : {"token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3",
                                "seq_mean_k1", "seq_mean_k2", "seq_mean_k3", "seq_max_k2", "seq_max_k3"}) {
    MetricSums metrics;
    RejectionSampling{.rollout_rs = {criterion}, .rollout_rs_threshold = {"1"}}.reject(groups, metrics);
    EXPECT_EQ(metrics.means().at("rollout_corr/rollout_rs_masked_fraction"), 0) << criterion;
  }
}

TEST(Rejection, SettingsThatMeanNothingAreRefusedWithTheirPlace) {
  EXPECT_EQ(problem_of("rollout_rs = ['token_k1', 'seq_mean_k3']\nrollout_rs_threshold = ['0.5_2', '0.1']"), "");
  EXPECT_EQ(problem_of("rollout_rs = 'token_k1, seq_mean_k3'\nrollout_rs_threshold = '0.5_2,0.1'"), "") << "verl's";
  const std::string with_bounds = "\nrollout_rs_threshold = '0.5_2'";
  EXPECT_NE(problem_of("rollout_rs = 'seq_mean_k4'" + with_bounds).find("recipe.toml:1:"), std::string::npos);
  EXPECT_NE(problem_of("rollout_rs = 'seq_mean_k4'" + with_bounds).find("did you mean"), std::string::npos);
  EXPECT_NE(problem_of("rollout_rs = ['token_k1', 'token_k1']" + with_bounds).find("twice"), std::string::npos);
  EXPECT_NE(problem_of("rollout_rs = 'token_k1'").find("needs bounds"), std::string::npos);
  EXPECT_NE(problem_of("rollout_rs = 'token_k2'" + with_bounds).find("an upper bound only"), std::string::npos);
  EXPECT_NE(problem_of("rollout_rs = 'token_k2'" + with_bounds).find("recipe.toml:2:"), std::string::npos);
  for (const char* bad : {"0", "-1", "x", "2_0.5", "0.5_", "_2", "0.5_2_3", "inf", "nan"})
    EXPECT_NE(problem_of(concat("rollout_rs = 'token_k1'\nrollout_rs_threshold = '", bad, "'")), "") << bad;
  EXPECT_NE(problem_of("rollout_rs_threshold = '2'").find("there are none"), std::string::npos);
  EXPECT_NE(problem_of("rollout_rs = 'token_k1'\nrollout_rs_threshold = ['2', '3']").find("2 bounds for 1"),
            std::string::npos);
}

TEST(Rejection, NeedsBothLogProbs) {
  PolicyLoss loss;
  EXPECT_FALSE(loss.needs().has(columns::old_logp));
  loss.rejection = {.rollout_rs = {"token_k1"}, .rollout_rs_threshold = {"2"}};
  EXPECT_TRUE(loss.needs().has(columns::old_logp));
  EXPECT_TRUE(loss.needs().has(columns::behavior_logp));
}

// torch.quantile: the value on the border, the interpolated one, and the whole range.
TEST(Quantile, InterpolatesAsTorchDoes) {
  const auto of = [](std::vector<float> values, double q) { return quantile_of(values, q); };
  // 0.8 in f32 is a little more than 0.8: the rank is 4.00000006, so the fifth value is below the quantile.
  EXPECT_GT(of({0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 90}, 1 - 0.2), 0.5f);
  EXPECT_EQ(of({3, 1, 2, 5, 4}, 0.5), 3);
  EXPECT_EQ(of({3, 1, 2, 5, 4}, 1 - 0.25), 4);
  EXPECT_EQ(of({3, 1, 2, 5, 4}, 0), 1);
  EXPECT_EQ(of({3, 1, 2, 5, 4}, 1), 5);
  EXPECT_EQ(of({2}, 0.3), 2);
  EXPECT_FLOAT_EQ(of({0, 10}, 0.3), 3);
  // 1 - 0.7 is a little more than 0.3 in double precision. In torch's float32 the rank is 3, so the fourth value
  // counts.
  EXPECT_EQ(of({10, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5}, 1 - 0.7), 3);
  EXPECT_THROW(of({}, 0.5), Error);
}

std::vector<Group> groups_with_entropies(size_t num_groups) {
  std::vector<Group> out(num_groups);
  Rng rng(5);
  for (Group& group : out)
    for (int i = 0; i < 3; ++i) {
      std::vector<float> mask(8), entropy(8);
      for (size_t t = 1; t < 8; ++t) mask[t] = rng.uniform() < 0.7, entropy[t] = static_cast<float>(rng.uniform());
      entropy[0] = 99;
      group.samples.push_back(sample_of(mask));
      group.samples.back().columns.set(columns::old_entropy, entropy);
    }
  return out;
}

TEST(TopEntropySelection, TakesTheQuantileOverTheWholeRolloutBatch) {
  std::vector<Group> groups = groups_with_entropies(4);
  MetricSums metrics;
  TopEntropy{.quantile = 0.2}.select(groups, metrics);
  double tokens = 0, selected = 0, lowest = 9, highest = 0;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples)
      for (size_t t = 0; t < 8; ++t) {
        const bool is_selected = entries(sample, columns::top_entropy)[t] != 0;
        const double entropy = entries(sample, columns::old_entropy)[t];
        if (entries(sample, columns::mask)[t] == 0) {
          EXPECT_FALSE(is_selected);
          continue;
        }
        tokens += 1, selected += is_selected;
        if (is_selected)
          lowest = std::min(lowest, entropy);
        else
          highest = std::max(highest, entropy);
      }
  EXPECT_GT(lowest, highest);
  EXPECT_NEAR(selected / tokens, 0.2, 1 / tokens);
  EXPECT_NEAR(metrics.means().at("top_entropy/selected"), selected / tokens, 1e-12);
  EXPECT_LE(metrics.means().at("top_entropy/threshold"), lowest);
}

// Ranks have all groups in one order; this is more than they need.
TEST(TopEntropySelection, DoesNotDependOnTheOrderOfTheSamples) {
  std::vector<Group> groups = groups_with_entropies(3), turned = groups;
  std::ranges::reverse(turned);
  MetricSums metrics, of_turned;
  TopEntropy{.quantile = 0.35}.select(groups, metrics);
  TopEntropy{.quantile = 0.35}.select(turned, of_turned);
  EXPECT_EQ(metrics.means(), of_turned.means());
  std::ranges::reverse(turned);
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(entries(groups[g].samples[i], columns::top_entropy),
                entries(turned[g].samples[i], columns::top_entropy));
}

TEST(TopEntropySelection, AnEmptyBatchSelectsNothing) {
  std::vector<Group> groups(1);
  groups[0].samples.push_back(sample_of({0, 0, 0}));
  groups[0].samples[0].columns.assign(columns::old_entropy, 3, 1);
  MetricSums metrics;
  TopEntropy{.quantile = 0.2}.select(groups, metrics);
  EXPECT_EQ(entries(groups[0].samples[0], columns::top_entropy), std::vector<float>(3, 0));
  EXPECT_TRUE(metrics.means().empty());
}

// Rejected and truncated tokens do not count in the quantile, as in TRL.
TEST(TopEntropySelection, ComesAfterWhatElseLeavesTheLoss) {
  std::vector<Group> groups(1);
  for (const char* reason : {"length", "stop"}) {
    Sample& sample = groups[0].samples.emplace_back(trajectory({0, 0, 0}));
    sample.completion.finish_reason = reason;
    sample.columns.set(columns::old_entropy, {7, 1, 2, 8, 9, 3});
  }
  std::ranges::fill(groups[0].samples[0].columns[columns::old_entropy], 50.f);
  const PolicyLoss loss{.mask_truncated_completions = true, .top_entropy = {.quantile = 0.5}};
  MetricSums metrics;
  loss.select_tokens(groups, metrics);
  EXPECT_EQ(metrics.means().at("top_entropy/threshold"), 2);
  EXPECT_EQ(entries(groups[0].samples[1], columns::top_entropy), (std::vector<float>{0, 0, 1, 0, 0, 1}));
}

// The paper's formula: lambda = 0.5 - (len - min) / (max - min); wrong completions get no bonus.
TEST(LengthPenaltyRewards, AreKimis) {
  const double rewards[] = {1, 1, 0, 0, 1};
  const size_t lengths[] = {10, 30, 10, 50, 50};
  std::vector<Sample> samples(5);
  std::vector<const Sample*> pointers;
  for (size_t i = 0; i < 5; ++i) {
    samples[i].reward = rewards[i], samples[i].completion.ids.resize(lengths[i]);
    pointers.push_back(&samples[i]);
  }
  EXPECT_EQ(LengthPenalty{.weight = 1}.rewards(pointers), (std::vector<double>{0.5, 0, 0, -0.5, -0.5}));
  EXPECT_EQ(LengthPenalty{.threshold = 0}.rewards(pointers), (std::vector<double>{0.5, 0, 0.5, -0.5, -0.5}));
  for (Sample& sample : samples) sample.completion.ids.resize(7);
  EXPECT_EQ(LengthPenalty{}.rewards(pointers), std::vector<double>(5, 0)) << "all have one length";
  EXPECT_TRUE(LengthPenalty{}.rewards({}).empty());
}

TEST(LengthPenaltyRewards, CountInAdvantagesAndNotInTheLog) {
  std::vector<Group> groups(1);
  for (const size_t length : {2u, 4u, 6u}) {
    Sample& sample = groups[0].samples.emplace_back(sample_of({0, 1, 1}));
    sample.reward = 1, sample.reward_parts = {{"answer", 1}}, sample.completion.ids.resize(length);
  }
  groups[0].samples.emplace_back(sample_of({0, 0, 0})).scored = false;  // the longest, and not compared
  groups[0].samples[3].completion.ids.resize(100);
  const std::vector<Group> before = groups;
  const std::unique_ptr<ObjectiveSettings> settings = objectives().at("grpo")();
  Config::from_text("length_penalty = 0.5\nscale_rewards = 'none'", "x").read([&](Fields& f) { settings->fields(f); });
  MetricSums metrics;
  settings->make({})->compute_advantages(groups, metrics);
  const float expected[] = {0.25f, 0, -0.25f, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(entries(groups[0].samples[i], columns::advantage)[1], expected[i]) << i;
    EXPECT_EQ(groups[0].samples[i].reward, before[0].samples[i].reward);
    EXPECT_EQ(groups[0].samples[i].reward_parts, before[0].samples[i].reward_parts);
  }
  EXPECT_EQ(metrics.means().at("rewards/length_penalty/mean"), 0);
}

// With several rewards the length reward is one of them.
TEST(LengthPenaltyRewards, AreOneRewardOfSeveral) {
  std::vector<Group> groups(1);
  for (const size_t length : {2u, 4u, 6u}) {
    Sample& sample = groups[0].samples.emplace_back(sample_of({0, 1, 1}));
    sample.reward = 1, sample.reward_parts = {{"answer", 1}}, sample.completion.ids.resize(length);
  }
  const std::unique_ptr<ObjectiveSettings> settings = objectives().at("grpo")();
  Config::from_text("length_penalty = 0.01\nmulti_objective_aggregation = 'normalize_then_sum'", "x")
      .read([&](Fields& f) { settings->fields(f); });
  const RunFacts facts{.reward_weights = {{"", {{"answer", 1}}}}};
  EXPECT_NO_THROW(settings->validate(facts));
  MetricSums metrics;
  settings->make(facts)->compute_advantages(groups, metrics);
  // The length reward alone differs: its weight is lost when the sum is scaled, but for the eps of 1e-4.
  EXPECT_NEAR(entries(groups[0].samples[0], columns::advantage)[1], 1, 0.02);
  EXPECT_EQ(entries(groups[0].samples[1], columns::advantage)[1], 0);
  EXPECT_THROW(settings->validate({.reward_weights = {{"", {{"length_penalty", 1}}}}}), Error);
}

TEST(LengthPenaltyRewards, AreNotForMaxRl) {
  const std::unique_ptr<ObjectiveSettings> settings = objectives().at("maxrl")();
  EXPECT_THROW(Config::from_text("length_penalty = 0.5", "x").read([&](Fields& f) { settings->fields(f); }), Error);
}

}  // namespace
}  // namespace hone
