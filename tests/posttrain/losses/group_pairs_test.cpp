#include "posttrain/losses/group_pairs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/config/config.h"
#include "tests/support/errors.h"

namespace hone {
namespace {

// A group whose completion i has the reward rewards[i], the id i, and log-probs that depend on i.
Group make(const std::vector<double>& rewards) {
  Group out;
  for (size_t i = 0; i < rewards.size(); ++i) {
    Sample& sample = out.samples.emplace_back();
    sample.reward = rewards[i];
    sample.tokens = {0, 1, static_cast<int32_t>(i)};
    sample.completion.ids = {1, static_cast<int32_t>(i)};
    sample.completion.finish_reason = "stop";
    sample.columns.set(columns::mask, {0, 1, 1});
    sample.columns.set(columns::logp, {0, -0.5f - 0.25f * static_cast<float>(i), -1.25f});
    sample.columns.set(columns::reference_logp, {0, -0.75f, -1.0f - 0.5f * static_cast<float>(i)});
  }
  return out;
}

// The last ids of chosen and rejected completions.
std::vector<std::pair<int, int>> ids(const std::vector<Group>& pairs) {
  std::vector<std::pair<int, int>> out;
  for (const Group& pair : pairs) out.emplace_back(pair.samples.at(0).tokens.back(), pair.samples.at(1).tokens.back());
  return out;
}
std::vector<std::pair<int, int>> ids(const std::vector<double>& rewards, const PairRules& rules) {
  Metrics unused;
  return ids(make_pairs(std::vector<Group>{make(rewards)}, rules, unused));
}
using Ids = std::vector<std::pair<int, int>>;

TEST(GroupPairs, TheBestMeetsTheWorst) {
  EXPECT_EQ(ids({0.5, 1, 0, 1, 0.2}, {}), (Ids{{1, 2}}));
  EXPECT_EQ(ids({0.5, 1, 0, 1, 0.2}, {.pairs_per_prompt = 9}), (Ids{{1, 2}, {3, 4}}));
  EXPECT_EQ(ids({1, 0.5}, {.margin = 0.5}), Ids{});
  EXPECT_EQ(ids({1, 0.5}, {.margin = 0.4}), (Ids{{0, 1}}));
}

TEST(GroupPairs, EqualRewardsMakeAPairOnlyWithAMarginBelowZero) {
  EXPECT_EQ(ids({1, 1}, {}), Ids{});
  EXPECT_EQ(ids({1, 1}, {.margin = -1}), (Ids{{0, 1}}));
  EXPECT_EQ(ids({}, {.margin = -1}), Ids{});
  EXPECT_EQ(ids({1}, {.margin = -1}), Ids{});
}

TEST(GroupPairs, ACutOffCompletionIsPenalized) {
  Group group = make({1, 0.5});
  group.samples[0].completion.finish_reason = "length";
  Metrics metrics;
  EXPECT_EQ(ids(make_pairs(std::vector<Group>{group}, {}, metrics)), (Ids{{0, 1}}));
  EXPECT_EQ(ids(make_pairs(std::vector<Group>{group}, {.missing_eos_penalty = 1}, metrics)), (Ids{{1, 0}}));
  EXPECT_EQ(metrics.at("objective/scores_margin"), 0.5);
  EXPECT_EQ(group.samples[0].reward, 1);
}

TEST(GroupPairs, CompletionsWithoutAScoreAreOnNoSide) {
  Group group = make({1, 0, 0.5});
  group.samples[1].scored = false;
  Metrics metrics;
  EXPECT_EQ(ids(make_pairs(std::vector<Group>{group}, {}, metrics)), (Ids{{0, 2}}));
}

TEST(GroupPairs, MetricsCountPairsAndPrompts) {
  Metrics metrics;
  make_pairs(std::vector<Group>{make({1, 0}), make({1, 1}), make({3, 1}), make({0, 0})}, {}, metrics);
  EXPECT_EQ(metrics.at("pairs"), 2);
  EXPECT_EQ(metrics.at("pairs/prompts_ratio"), 0.5);
  EXPECT_EQ(metrics.at("objective/scores_margin"), 1.5);
  metrics.clear();
  make_pairs(std::vector<Group>{make({1, 1})}, {}, metrics);
  EXPECT_EQ(metrics.at("pairs"), 0);
  EXPECT_FALSE(metrics.contains("objective/scores_margin"));
}

// The loss of OnlineDPOTrainer.training_step: two completions of each prompt, mask = first_reward >= second_reward, and
// the mean over prompts of -logsigmoid(beta * logits) or (logits - 1 / (2 beta))^2. In ipo the log-ratios are means
// over tokens, as in DPOTrainer.
TEST(GroupPairs, TheLossIsThatOfTrlsOnlineDpo) {
  const std::vector<Group> groups{make({0.5, 1}), make({2, 2}), make({1, 0.25}), make({-1, 0})};
  for (const char* type : {"sigmoid", "ipo"}) {
    double expected = 0;
    for (const Group& group : groups) {
      const auto ratio = [&](const Sample& sample) {
        const std::span<const float> logp = sample.columns.find(columns::logp),
                                     reference = sample.columns.find(columns::reference_logp);
        return static_cast<double>(logp[1]) - reference[1] + logp[2] - reference[2];
      };
      const bool first = group.samples[0].reward >= group.samples[1].reward;
      const double logits = ratio(group.samples[first ? 0 : 1]) - ratio(group.samples[first ? 1 : 0]);
      expected += std::string(type) == "sigmoid" ? std::log1p(std::exp(-0.1 * logits)) : std::pow(logits / 2 - 5, 2);
    }
    Metrics metrics;
    const std::vector<Group> pairs = make_pairs(groups, {.margin = -1}, metrics);
    std::vector<const Sample*> samples;
    for (const Group& pair : pairs)
      for (const Sample& sample : pair.samples) samples.push_back(&sample);
    Columns columns;
    join_columns(samples, columns);
    std::vector<int32_t> offsets{0};
    for (const Sample* sample : samples)
      offsets.push_back(offsets.back() + static_cast<int32_t>(sample->tokens.size()));
    TokenBatch batch{.offsets = offsets, .scale = 0.25};
    columns.for_each([&](Column column, std::span<const float> values) { batch.columns.set(column, values); });
    std::vector<float> gradient(batch.num_tokens());
    MetricSums sums;
    auto settings = objectives().at("dpo")();
    Config::from_text(concat("loss_type = '", type, "'"), "x.toml").read([&](Fields& f) { settings->fields(f); });
    const double loss = settings->make({})->loss(batch, {.logp = gradient, .entropy = {}, .value = {}}, sums);
    EXPECT_NEAR(loss, expected / 4, 1e-9) << type;
  }
}

}  // namespace
}  // namespace hone
