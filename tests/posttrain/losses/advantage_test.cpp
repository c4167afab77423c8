#include "posttrain/losses/advantage.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/data/entries.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::entries;

std::vector<Group> make_groups(std::span<const double> rewards, size_t group_size) {
  std::vector<Group> groups(rewards.size() / group_size);
  for (size_t i = 0; i < rewards.size(); ++i) {
    Sample& sample = groups[i / group_size].samples.emplace_back();
    sample.tokens = {1, 2, 3}, sample.columns.set(columns::mask, {0, 1, 1});
    sample.reward = rewards[i];
  }
  return groups;
}

std::vector<double> advantages_of(const std::vector<Group>& groups) {
  std::vector<double> out;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) out.push_back(entries(sample, columns::advantage).at(0));
  return out;
}

TEST(GroupAdvantages, ScaleByGroupBatchOrNothing) {
  const double rewards[] = {1, 3, 10, 10};
  const double batch_mean = 6, batch_deviation = std::sqrt((25 + 9 + 16 + 16) / 3.0), group_deviation = std::sqrt(2.0);
  EXPECT_EQ(moments_of(rewards).mean, batch_mean);
  EXPECT_NEAR(moments_of(rewards).deviation, batch_deviation, 1e-15);
  const auto run = [&](RewardScale scale) {
    std::vector<Group> groups = make_groups(rewards, 2);
    group_advantages(groups, {.scale = scale});
    return advantages_of(groups);
  };
  const std::vector<double> group = run(RewardScale::group);
  EXPECT_NEAR(group[0], -1 / (group_deviation + 1e-4), 1e-6);
  EXPECT_NEAR(group[1], 1 / (group_deviation + 1e-4), 1e-6);
  EXPECT_EQ(group[2], 0);
  EXPECT_NEAR(run(RewardScale::batch)[0], -1 / (batch_deviation + 1e-4), 1e-6);
  EXPECT_EQ(run(RewardScale::none), (std::vector<double>{-1, 1, 0, 0}));
}

TEST(GroupAdvantages, LeaveOutWhatIsNotJudged) {
  const double rewards[] = {1, 3, 100, 5};
  std::vector<Group> groups = make_groups(rewards, 4);
  groups[0].samples[2].scored = false;
  EXPECT_EQ(scored(groups[0]).rewards, (std::vector<double>{1, 3, 5}));
  EXPECT_EQ(scored(groups),
            (std::vector<Sample*>{&groups[0].samples[0], &groups[0].samples[1], &groups[0].samples[3]}));
  group_advantages(groups, {.scale = RewardScale::batch, .eps = 1});
  EXPECT_EQ(groups[0].samples[0].columns[columns::advantage][0], static_cast<float>(-2 / 3.0));
  EXPECT_EQ(groups[0].samples[1].columns[columns::advantage][0], 0);
  EXPECT_TRUE(groups[0].samples[2].columns.find(columns::advantage).empty());
}

// 0.1 + 0.1 + 0.1 is not 3 * 0.1: equal rewards must still have advantage 0.
TEST(GroupAdvantages, OfEqualRewardsAreExactlyZero) {
  const std::vector<double> rewards(7, 0.1);
  std::vector<Group> groups = make_groups(rewards, 7);
  group_advantages(groups, {.scale = RewardScale::group});
  for (const Sample& sample : groups[0].samples) EXPECT_EQ(sample.columns[columns::advantage][0], 0);
  EXPECT_EQ(leave_one_out(rewards), rewards);
}

TEST(LeaveOneOut, IsTheMeanOfTheOthers) {
  const double rewards[] = {1, 2, 6};
  EXPECT_EQ(leave_one_out(rewards), (std::vector<double>{4, 3.5, 1.5}));
  EXPECT_EQ(leave_one_out(std::span(rewards).first(1)), std::vector<double>{1});
  EXPECT_TRUE(leave_one_out({}).empty());
}

TEST(SetColumn, WritesMaskedTokensInOrder) {
  Sample a, b;
  a.tokens = b.tokens = {1, 2, 3};
  a.columns.set(columns::mask, {0, 1, 1}), b.columns.set(columns::mask, {0, 0, 1});
  const std::vector<Sample*> samples = {&a, &b};
  set_column(samples, columns::returns, std::vector<double>{1, 2, 3});
  EXPECT_EQ(entries(a, columns::returns), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(entries(b, columns::returns), (std::vector<float>{0, 0, 3}));
}

TEST(GroupAdvantages, AgreeWithPublishedNumbers) {
  HONE_SHARED_OR_SKIP(path, "vectors/a5/functions_2026.json");
  const Json all = parse_json(read_file(path), path.string());
  const Json& section = all.at("compute_group_normalized_rewards");
  std::vector<double> rewards;
  for (const Json& reward : section.at("inputs").at("raw_rewards").as_array()) rewards.push_back(reward.as_double());
  const auto group_size = static_cast<size_t>(section.at("inputs").at("group_size").as_int());
  const auto check = [&](RewardScale scale, const char* name) {
    std::vector<Group> groups = make_groups(rewards, group_size);
    group_advantages(groups, {.scale = scale, .eps = section.at("inputs").at("advantage_eps").as_double()});
    const std::vector<double> got = advantages_of(groups);
    const JsonArray& expected = section.at("cases").at(name).as_array();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i].as_double(), 1e-6) << name;
  };
  check(RewardScale::group, "grpo(baseline=mean,norm=std)");
  check(RewardScale::none, "dr_grpo(mean,none)");
}

// GAE written out as the discounted sum of temporal differences.
TEST(EstimateAdvantages, IsTheDiscountedSumOfTemporalDifferences) {
  const double rewards[] = {0.5, -0.25, 0, 2}, values[] = {0.1, 0.4, -0.3, 0.7};
  const double gamma = 0.9, lambda = 0.8;
  double advantages[4];
  estimate_advantages(rewards, values, gamma, lambda, advantages);
  for (size_t t = 0; t < 4; ++t) {
    double expected = 0;
    for (size_t k = t; k < 4; ++k)
      expected += std::pow(gamma * lambda, static_cast<double>(k - t)) *
                  (rewards[k] + (k < 3 ? gamma * values[k + 1] : 0) - values[k]);
    EXPECT_NEAR(advantages[t], expected, 1e-14);
  }
}

TEST(Whiten, GivesVarianceOneAndKeepsOrDropsTheMean) {
  std::vector<double> centred = {1, 2, 3, 6}, kept = centred;
  whiten(centred, true);
  whiten(kept, false);
  EXPECT_NEAR(moments_of(centred).mean, 0, 1e-12);
  EXPECT_NEAR(moments_of(centred).deviation, 1, 1e-6);
  EXPECT_NEAR(moments_of(kept).mean, 3, 1e-12);
  EXPECT_NEAR(moments_of(kept).deviation, 1, 1e-6);
}

// Samples of two sources, each with rewards of its own. TRL's numbers are in policy_golden_test.cpp.
TEST(NormalizeThenSum, TakesTheWeightsOfTheSourceAndTheRestOfTheReward) {
  const double rewards[] = {1, 2, 10, 30};
  std::vector<Group> groups = make_groups(rewards, 2);
  groups[0].task.source = "a", groups[1].task.source = "b";
  groups[0].samples[0].reward_parts = {{"x", 4}, {"unweighted", 100}};  // 1 = 0.5 * 4 - 1
  groups[0].samples[1].reward_parts = {{"x", 2}};                       // 2 = 0.5 * 2 + 1
  normalize_then_sum(groups, {{"a", {{"x", 0.5}, {"", 2}}}}, 0);
  const double unit = 1 / std::sqrt(2.0);  // a pair's distance from its mean, by its deviation
  const std::vector<double> totals = {0.5 * unit - 2 * unit, -0.5 * unit + 2 * unit, -unit, unit};
  const Moments moments = moments_of(totals);
  const std::vector<double> found = advantages_of(groups);
  for (size_t i = 0; i < totals.size(); ++i) EXPECT_NEAR(found[i], totals[i] / moments.deviation, 1e-6) << i;
}

TEST(NormalizeThenSum, EqualRewardsHaveNoAdvantage) {
  const double rewards[] = {1, 1, 1, 1};
  std::vector<Group> groups = make_groups(rewards, 2);
  normalize_then_sum(groups, {}, 1e-4);
  EXPECT_EQ(advantages_of(groups), std::vector<double>(4, 0));
}

}  // namespace
}  // namespace hone
