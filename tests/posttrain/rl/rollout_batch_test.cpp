#include "posttrain/rl/rollout_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>

#include "core/io/jsonl.h"
#include "model/token_logprobs.h"
#include "posttrain/losses/top_entropy.h"
#include "posttrain/rl/collector.h"
#include "tests/data/entries.h"
#include "tests/model/characters.h"
#include "tests/support/ranks.h"

namespace hone::test {
namespace {

// Groups of `sizes` samples; the reward of sample i of group g is 10 g + i.
RolloutBatch make(const std::vector<int>& sizes) {
  std::vector<Group> groups;
  for (size_t g = 0; g < sizes.size(); ++g) {
    Group& group = groups.emplace_back();
    for (int i = 0; i < sizes[g]; ++i) {
      Sample& sample = group.samples.emplace_back();
      sample.reward = 10.0 * static_cast<double>(g) + i;
      sample.reward_parts = {{"part", sample.reward / 2}};
      sample.completion.ids.assign(static_cast<size_t>(i) + 1, 0);
      sample.completion.finish_reason = i == 0 ? "length" : "stop";
    }
  }
  return RolloutBatch(std::move(groups));
}

std::vector<double> rewards(const std::vector<const Sample*>& samples) {
  std::vector<double> out;
  for (const Sample* sample : samples) out.push_back(sample->reward);
  return out;
}

TEST(RolloutBatch, EveryCompletionIsLoggedWithThePromptAsItWasRead) {
  RolloutBatch experience = make({2, 3});
  experience.groups[0].task.prompt = experience.groups[0].task.rendered = "1+1?";
  Task& chat = experience.groups[1].task;
  chat.messages = {{"user", "2+2?", {}}};
  chat.rendered = "<user>2+2?<assistant>";
  experience.groups[1].samples[2].scored = false;
  const auto rows_of = [&](int64_t count) { return experience.sample_rows(7, count); };
  const std::vector<Json> rows = rows_of(-1);
  ASSERT_EQ(rows.size(), 5u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("step").as_int(), 7);
    EXPECT_EQ(rows[i].at("prompt").as_string(), i < 2 ? "1+1?" : "<user>2+2?<assistant>");
    EXPECT_EQ(rows[i].find("messages") != nullptr, i >= 2);
  }
  EXPECT_EQ(rows[4].at("messages").dump(), R"([{"role": "user", "content": "2+2?"}])");
  EXPECT_EQ(rows[3].at("reward").as_double(), 11);
  EXPECT_TRUE(rows[4].at("reward").is_null());
  EXPECT_EQ(rows_of(3).size(), 3u);
  EXPECT_EQ(rows_of(99).size(), 5u);
  EXPECT_EQ(rows_of(0).size(), 0u);
}

TEST(RolloutBatch, OneUpdateKeepsTheSamplesOrder) {
  const RolloutBatch experience = make({2, 3});
  EXPECT_EQ(rewards(experience.mini_batches(1, LossUnit::sequence, 1, 0).at(0)),
            (std::vector<double>{0, 1, 10, 11, 12}));
}

TEST(RolloutBatch, UpdatesShareTheSamplesOutAndEachPassHasItsOrder) {
  const RolloutBatch experience = make({4, 4, 4});
  std::set<std::vector<double>> orders;
  for (uint64_t pass = 0; pass < 3; ++pass) {
    std::multiset<double> seen;
    std::vector<double> order;
    for (const auto& mini : experience.mini_batches(5, LossUnit::token, 9, pass)) {
      EXPECT_GE(mini.size(), 2u);
      EXPECT_LE(mini.size(), 3u);
      for (const double reward : rewards(mini)) seen.insert(reward), order.push_back(reward);
    }
    EXPECT_EQ(seen, (std::multiset<double>{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}));
    orders.insert(order);
    EXPECT_EQ(experience.mini_batches(5, LossUnit::token, 9, pass),
              experience.mini_batches(5, LossUnit::token, 9, pass));
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(RolloutBatch, PairsStayWholeAndInOrder) {
  const RolloutBatch experience = make({2, 2, 2, 2});
  for (const auto& mini : experience.mini_batches(3, LossUnit::pair, 4, 0)) {
    ASSERT_EQ(mini.size() % 2, 0u);
    for (size_t i = 0; i < mini.size(); i += 2) EXPECT_EQ(mini[i]->reward + 1, mini[i + 1]->reward);
  }
}

TEST(RolloutBatch, MoreUpdatesThanSamplesLeavesNoneEmpty) {
  for (const auto& mini : make({2}).mini_batches(7, LossUnit::sequence, 1, 0)) EXPECT_FALSE(mini.empty());
}

TEST(RolloutBatch, MetricsAreOverCompletionsAndGroups) {
  const Metrics metrics = make({2, 1}).metrics();
  EXPECT_DOUBLE_EQ(metrics.at("reward"), 11.0 / 3);
  // Of {0, 1, 10}: over all completions, as in TRL.
  EXPECT_NEAR(metrics.at("reward_std"), std::sqrt((121 + 64 + 361) / 18.0), 1e-12);
  EXPECT_DOUBLE_EQ(metrics.at("reward_group_std"), std::sqrt(0.5) / 2);  // of {0, 1}; a group of one has none
  EXPECT_DOUBLE_EQ(metrics.at("frac_reward_zero_std"), 0.5);
  EXPECT_DOUBLE_EQ(metrics.at("completions/mean_length"), 4.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.at("completions/min_length"), 1);
  EXPECT_DOUBLE_EQ(metrics.at("completions/max_length"), 2);
  EXPECT_DOUBLE_EQ(metrics.at("completions/clipped_ratio"), 2.0 / 3);
  // The first completion of each group is truncated.
  EXPECT_DOUBLE_EQ(metrics.at("completions/mean_terminated_length"), 2);
  EXPECT_DOUBLE_EQ(metrics.at("completions/min_terminated_length"), 2);
  EXPECT_DOUBLE_EQ(metrics.at("completions/max_terminated_length"), 2);
  EXPECT_DOUBLE_EQ(metrics.at("rewards/part/mean"), 11.0 / 6);
  EXPECT_NEAR(metrics.at("rewards/part/std"),
              std::sqrt((std::pow(11.0 / 6, 2) + std::pow(8.0 / 6, 2) + std::pow(19.0 / 6, 2)) / 2), 1e-12);
}

TEST(RolloutBatch, MetricsAndRowsAreAlsoBySource) {
  RolloutBatch experience = make({2, 3, 2});
  for (const Group& group : experience.groups) EXPECT_TRUE(group.task.source.empty());
  EXPECT_FALSE(experience.metrics().contains("reward/a"));
  experience.groups[0].task.source = experience.groups[2].task.source = "a";
  experience.groups[1].task.source = "b";
  for (Sample& sample : experience.groups[2].samples) sample.reward = 4;
  const Metrics metrics = experience.metrics();
  EXPECT_EQ(metrics.at("prompts/a"), 2);
  EXPECT_EQ(metrics.at("reward/a"), (0 + 1 + 4 + 4) / 4.0);
  EXPECT_EQ(metrics.at("reward/b"), 11);
  EXPECT_EQ(metrics.at("reward_std/b"), 1);
  EXPECT_EQ(metrics.at("frac_reward_zero_std/a"), 0.5);
  EXPECT_EQ(metrics.at("frac_reward_zero_std/b"), 0);
  EXPECT_EQ(metrics.at("completions/mean_length/b"), 2);
  EXPECT_EQ(experience.sample_rows(1, 1).at(0).at("source", "row").as_string(), "a");
}

TEST(RolloutBatch, WhereNoCompletionEndsByItselfTerminatedLengthsAreZero) {
  const Metrics metrics = make({1, 1}).metrics();
  for (const char* name : {"mean", "min", "max"})
    EXPECT_EQ(metrics.at(concat("completions/", name, "_terminated_length")), 0) << name;
  EXPECT_EQ(metrics.at("completions/clipped_ratio"), 1);
  EXPECT_EQ(metrics.at("frac_reward_zero_std"), 1);
}

TEST(RolloutBatch, CompletionsThatCouldNotBeSampledAreLeftOut) {
  std::vector<Group> groups = make({2, 1}).groups;
  groups[0].samples[1].completion.ids.clear();
  groups[1].samples[0].completion.ids.clear();
  const RolloutBatch experience(groups);
  ASSERT_EQ(experience.groups.size(), 1u);
  EXPECT_EQ(rewards(experience.samples()), std::vector<double>{0});
  groups[0].samples[0].completion.ids.clear();
  EXPECT_THROW(RolloutBatch{groups}, Error);
}

TEST(RolloutBatch, UnjudgedSamplesAreNoPartOfTheRewardAndAreCounted) {
  std::vector<Group> groups = make({3, 2}).groups;
  for (const auto& [g, i] : {std::pair{0, 1}, {1, 0}, {1, 1}}) {
    Sample& sample = groups[static_cast<size_t>(g)].samples[static_cast<size_t>(i)];
    sample.scored = false;
    sample.reward = 0;
    sample.reward_parts.clear();
    sample.counts = {{"rewards/part/failed", 1}};
  }
  const Metrics metrics = RolloutBatch(std::move(groups)).metrics();
  EXPECT_DOUBLE_EQ(metrics.at("reward"), 1);  // of {0, 2}
  EXPECT_DOUBLE_EQ(metrics.at("reward_std"), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(metrics.at("frac_reward_zero_std"), 0);
  EXPECT_DOUBLE_EQ(metrics.at("rewards/part/mean"), 0.5);
  EXPECT_DOUBLE_EQ(metrics.at("rewards/part/failed"), 3);
  EXPECT_DOUBLE_EQ(metrics.at("completions/mean_length"), 9.0 / 5);
}

TEST(RolloutBatch, ValuesGoToTheirSamples) {
  RolloutBatch experience = make({1, 2});
  experience.set_values({{1}, {2}, {3}});
  EXPECT_EQ(entries(experience.groups[0].samples[0], columns::old_value), std::vector<float>{1});
  EXPECT_EQ(entries(experience.groups[1].samples[1], columns::old_value), std::vector<float>{3});
}

RewardSpec reward() {
  RewardSpec out;
  Config::from_text("kind = 'length'", "test").read([&](Fields& f) { out.fields(f); });
  return out;
}

class OldLogp : public ::testing::Test {
 protected:
  static constexpr double temperature = 0.7;
  OldLogp() {
    Group& group = groups.emplace_back();
    for (int i = 0; i < 3; ++i) {
      Sample& sample = group.samples.emplace_back();
      sample.tokens = tokenizer.encode(std::string("ab 12. c0").substr(0, 5 + 2 * static_cast<size_t>(i)));
      sample.completion.ids = {sample.tokens.back()};
      sample.columns.assign(columns::behavior_logp, sample.tokens.size(), -0.25f * static_cast<float>(i + 1));
      sample.weight_version = 4 + i;
    }
  }
  std::vector<float> learners(const Sample& sample) {
    return compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{sample.tokens},
                            {.temperature = temperature})
        .front()
        .logp;
  }

  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
  std::unique_ptr<Device> device = cpu_device();
  Context context{*device};
  std::unique_ptr<Model> model = character_model(context, tokenizer);
  std::vector<Group> groups;
};

// No model computed the recorded log-probs: equal numbers show that no scoring pass ran.
TEST_F(OldLogp, OfTheseWeightsIsWhatTheSamplerRecorded) {
  RolloutBatch experience(groups);
  experience.set_old_logp(context, *model, temperature, 5);
  const std::vector<Sample>& samples = experience.groups[0].samples;
  EXPECT_EQ(entries(samples[1], columns::old_logp), entries(groups[0].samples[1], columns::behavior_logp));
  for (const size_t stale : {0u, 2u}) {
    EXPECT_EQ(entries(samples[stale], columns::old_logp), learners(samples[stale])) << stale;
    EXPECT_EQ(entries(samples[stale], columns::behavior_logp),
              entries(groups[0].samples[stale], columns::behavior_logp))
        << stale;
  }
}

TEST_F(OldLogp, OfAnotherArithmeticIsComputed) {
  for (const bool exact_sampler : {false, true}) {
    RolloutBatch experience(groups);
    context.set_numerics(exact_sampler ? Numerics::fast : Numerics::exact);
    experience.set_old_logp(context, *model, temperature, 5, exact_sampler);
    for (const Sample& sample : experience.groups[0].samples)
      EXPECT_EQ(entries(sample, columns::old_logp), learners(sample));
  }
}

// Entropies take a scoring pass of every sample, which gives the log-probs, too.
TEST_F(OldLogp, ComesWithTheEntropyIfTheObjectiveReadsIt) {
  RolloutBatch experience(groups);
  experience.set_old_entropy(context, *model, temperature);
  for (const Sample& sample : experience.groups[0].samples) {
    const TokenLogprobs scores = compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{sample.tokens},
                                                  {.temperature = temperature, .entropy = true})
                                     .front();
    EXPECT_EQ(entries(sample, columns::old_logp), scores.logp);
    EXPECT_EQ(entries(sample, columns::old_entropy), scores.entropy);
    EXPECT_GT(scores.entropy.back(), 0);
  }
}

TEST_F(OldLogp, AndTheEntropyAreTheSameOnAnyNumberOfRanks) {
  RolloutBatch one(groups);
  one.set_old_entropy(context, *model, temperature);
  std::mutex mutex;
  on_ranks(2, [&](const Ranks& ranks, Context& own) {
    const std::unique_ptr<Model> copy = character_model(own, tokenizer);
    RolloutBatch shared(groups);
    shared.set_old_entropy(own, *copy, temperature, ranks);
    const std::scoped_lock lock(mutex);
    for (size_t i = 0; i < groups[0].samples.size(); ++i)
      for (const Column column : {columns::old_logp, columns::old_entropy})
        EXPECT_EQ(entries(shared.groups[0].samples[i], column), entries(one.groups[0].samples[i], column)) << i;
  });
}

// The sampler's log-probs and a scoring pass with the same weights have the same bits.
TEST_F(OldLogp, OnPolicyBothWaysAgreeBitForBit) {
  Task task;
  task.prompt = "ab 1";
  CollectorConfig config;
  config.num_generations = 4;
  config.sampling.temperature = temperature;
  config.sampling.max_tokens = 12;
  config.reward = reward();
  LocalBackend sampler(context, *model, tokenizer, {});
  sampler.set_policy_version(3);
  Collector actor(sampler, tokenizer, config);
  const Task* asked[] = {&task};
  RolloutBatch experience(actor.gather(asked, 0)), stale = experience;
  experience.set_old_logp(context, *model, temperature, 3);
  stale.set_old_logp(context, *model, temperature, 4);
  for (size_t i = 0; i < 4; ++i) {
    const Sample &one = experience.groups[0].samples[i], &other = stale.groups[0].samples[i];
    for (size_t t = 0; t < one.tokens.size(); ++t)
      if (one.columns[columns::mask][t] != 0) {
        ASSERT_EQ(one.columns[columns::old_logp][t], other.columns[columns::old_logp][t]) << i << " token " << t;
        ASSERT_EQ(one.columns[columns::old_logp][t], one.columns[columns::behavior_logp][t]) << i << " token " << t;
      }
  }
}

}  // namespace
}  // namespace hone::test
