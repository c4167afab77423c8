#include "posttrain/rl/reward_runner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "tests/data/entries.h"
#include "train/loop.h"

namespace hone::test {
namespace {

// Returns the score that its test sets.
class Scripted : public Reward {
 public:
  std::function<RewardScore(const Task&, const Completion&)> say;
  bool host = true;
  int64_t at_once = 4;
  mutable std::atomic<int> now{0}, most{0};
  RewardScore score(const Task& task, const Completion& completion) const override {
    const int running = ++now;
    for (int seen = most; seen < running && !most.compare_exchange_weak(seen, running);) {}
    const RewardScore out = say(task, completion);
    --now;
    return out;
  }
  bool on_host() const override { return host; }
  int64_t concurrency() const override { return at_once; }
};

class RewardRunnerTest : public ::testing::Test {
 protected:
  RewardRunnerTest() {
    for (int g = 0; g < 6; ++g) {
      Group& group = groups.emplace_back();
      group.task.id = "t" + std::to_string(g);
      for (int i = 0; i < 4; ++i) {
        Sample& sample = group.samples.emplace_back();
        sample.tokens = {1, 2, 3};
        sample.columns.set(columns::mask, {0, 1, 1});
        sample.completion.text = std::to_string(10 * g + i);
      }
    }
    spec.reward.set("scripted", reward);
  }
  void judge(double max_failure_rate = 0) { judge(max_failure_rate, {5, 3, 1, 0, 2, 4}); }
  void judge(double max_failure_rate, std::vector<size_t> order) {
    RewardRunner all(spec, max_failure_rate);
    RewardRunner::ScoringRound round(all, groups);
    for (const size_t i : order) round.submit(i);
    round.finish();
  }
  std::string error_of(double max_failure_rate) {
    for (Group& group : groups)
      for (Sample& one : group.samples) one.scored = true;
    try {
      judge(max_failure_rate);
    } catch (const StepAborted& error) {
      return error.what();
    }
    return "";
  }
  Sample& sample(size_t g, size_t i) { return groups[g].samples[i]; }

  std::vector<Group> groups;
  std::shared_ptr<Scripted> reward = std::make_shared<Scripted>();
  RewardSpec spec;
};

RewardScore number_of(const Completion& completion) { return {.score = std::stod(completion.text)}; }

TEST_F(RewardRunnerTest, EveryCompletionGetsItsOwnScoreWhateverFinishesFirst) {
  reward->say = [](const Task&, const Completion& c) {
    std::this_thread::sleep_for(std::chrono::microseconds(300 * (7 - std::stoi(c.text) % 7)));
    return number_of(c);
  };
  judge();
  EXPECT_GT(reward->most, 1);
  EXPECT_LE(reward->most, 4);
  for (size_t g = 0; g < 6; ++g)
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(sample(g, i).reward, static_cast<double>(10 * g + i));
      EXPECT_EQ(sample(g, i).reward_parts, (Metrics{{"scripted", static_cast<double>(10 * g + i)}}));
      EXPECT_TRUE(sample(g, i).scored);
      EXPECT_EQ(entries(sample(g, i), columns::mask), (std::vector<float>{0, 1, 1}));
      EXPECT_TRUE(sample(g, i).counts.empty());
    }
}

TEST_F(RewardRunnerTest, SaysWhenNothingIsLeftToWaitFor) {
  std::atomic<bool> open{false};
  reward->say = [&](const Task&, const Completion& c) {
    while (!open) std::this_thread::yield();
    return number_of(c);
  };
  RewardRunner all(spec, 0);
  RewardRunner::ScoringRound round(all, groups);
  EXPECT_TRUE(round.scored({}));
  round.submit(2);
  EXPECT_FALSE(round.scored({}));
  EXPECT_FALSE(round.scored(std::chrono::milliseconds(2)));
  open = true;
  EXPECT_TRUE(round.scored(std::chrono::seconds(20)));
  round.finish();
  EXPECT_EQ(sample(2, 3).reward, 23);
}

TEST_F(RewardRunnerTest, AGroupIsJudgedBeforeTheNextIsSubmitted) {
  std::atomic<int> done{0};
  reward->say = [&](const Task&, const Completion& c) { return ++done, number_of(c); };
  RewardRunner all(spec, 0);
  RewardRunner::ScoringRound round(all, groups);
  round.submit(3);
  for (int i = 0; i < 20000 && done < 4; ++i) std::this_thread::sleep_for(std::chrono::microseconds(500));
  EXPECT_EQ(done, 4);
  round.submit(0);
  round.finish();
  EXPECT_EQ(sample(3, 2).reward, 32);
  EXPECT_EQ(sample(0, 1).reward, 1);
}

TEST_F(RewardRunnerTest, WhatIsSkippedOrFailedTrainsNothingAndIsCounted) {
  spec.name = "outside";
  reward->say = [](const Task&, const Completion& c) {
    if (c.text == "1") return RewardScore{.score = 5, .skipped = true};
    if (c.text == "22") return RewardScore{.score = 7, .note = "no answer", .failed = true};
    if (c.text == "23")
      return RewardScore{
          .score = 7, .note = "x: no answer", .failed = true, .parts = {{"y", 2}}, .failed_parts = {"x", "x/z"}};
    return number_of(c);
  };
  judge(0.1);
  for (const auto& [g, i] : {std::pair{0, 1}, {2, 2}, {2, 3}}) {
    EXPECT_FALSE(sample(g, i).scored);
    EXPECT_EQ(sample(g, i).reward, 0);
    EXPECT_EQ(entries(sample(g, i), columns::mask), (std::vector<float>{0, 0, 0}));
  }
  EXPECT_EQ(sample(0, 1).counts, (Metrics{{"rewards/skipped", 1}}));
  EXPECT_EQ(sample(2, 2).counts, (Metrics{{"rewards/outside/failed", 1}}));
  EXPECT_EQ(sample(2, 3).counts, (Metrics{{"rewards/x/failed", 1}, {"rewards/x/z/failed", 1}}));
  EXPECT_EQ(sample(2, 3).reward_parts, (Metrics{{"y", 2}}));
  EXPECT_EQ(sample(2, 1).reward, 21);
  EXPECT_TRUE(sample(2, 1).scored);
}

TEST_F(RewardRunnerTest, PastTheStatedRateTheRoundEndsWithTheFirstMessage) {
  reward->say = [](const Task&, const Completion& c) {
    return std::stoi(c.text) % 4 == 3 ? RewardScore{.note = "the service is down", .failed = true} : number_of(c);
  };
  EXPECT_EQ(error_of(0.25), "");  // 6 of 24
  EXPECT_EQ(error_of(0.2),
            "reward scripted: 6 of 24 completions could not be scored, max_reward_failure_rate is 0.2; t0: the service "
            "is down");
  EXPECT_NE(error_of(0), "");
}

TEST_F(RewardRunnerTest, SkippedCompletionsAreNoFailures) {
  reward->say = [](const Task&, const Completion&) { return RewardScore{.skipped = true}; };
  judge(0);
  for (const Group& group : groups)
    for (const Sample& one : group.samples) EXPECT_FALSE(one.scored);
}

TEST_F(RewardRunnerTest, CompletionsThatWereNotSampledAreNotJudged) {
  for (Sample& one : groups[1].samples) one.scored = false;
  groups[2].samples[0].scored = false;
  std::atomic<int> asked{0};
  reward->say = [&](const Task&, const Completion& c) { return ++asked, number_of(c); };
  judge();
  EXPECT_EQ(asked, 19);
  EXPECT_EQ(sample(1, 1).reward, 0);
  EXPECT_TRUE(sample(1, 1).reward_parts.empty());
  EXPECT_EQ(sample(2, 1).reward, 21);
}

TEST_F(RewardRunnerTest, WhatARewardThrowsIsTheFirstGroupsError) {
  reward->say = [](const Task& task, const Completion& c) -> RewardScore {
    if (task.id == "t4") throw Error("t4 is no task");
    if (task.id == "t2") {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      throw Error("t2 is no task");
    }
    return number_of(c);
  };
  try {
    judge();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "t2 is no task");
  }
}

TEST_F(RewardRunnerTest, AScoreThatIsNoNumberIsAnErrorNamingTheTask) {
  for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    reward->say = [wrong](const Task& task, const Completion& c) {
      return task.id == "t3" ? RewardScore{.score = wrong} : number_of(c);
    };
    try {
      judge();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("the score of t3 is "), std::string::npos) << error.what();
    }
  }
}

TEST_F(RewardRunnerTest, ARewardOnTheDeviceIsCalledOnTheOwnersThreadAtTheEnd) {
  reward->host = false;
  std::atomic<int> elsewhere{0};
  std::atomic<bool> finishing{false};
  const std::thread::id owner = std::this_thread::get_id();
  struct OnDevice : Scripted {
    void score_groups(std::span<const GroupScores> asked) const override {
      for (const GroupScores& group : asked) score_group(group.task, group.completions, group.scores);
    }
  };
  const auto on_device = std::make_shared<OnDevice>();
  on_device->host = false;
  on_device->say = [&](const Task&, const Completion& c) {
    elsewhere += std::this_thread::get_id() != owner || !finishing;
    return number_of(c);
  };
  spec.reward.set("on_device", on_device);
  RewardRunner all(spec, 0);
  RewardRunner::ScoringRound round(all, groups);
  for (size_t i = 0; i < groups.size(); ++i) round.submit(i);
  finishing = true;
  round.finish();
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(sample(5, 3).reward, 53);
}

TEST_F(RewardRunnerTest, ARoundThatIsGivenUpWaitsForWhatIsUnderWay) {
  std::atomic<int> begun{0}, ended{0};
  reward->say = [&](const Task&, const Completion& c) {
    ++begun;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ++ended;
    return number_of(c);
  };
  {
    RewardRunner all(spec, 0);
    RewardRunner::ScoringRound round(all, groups);
    for (size_t i = 0; i < groups.size(); ++i) round.submit(i);
    while (begun == 0) std::this_thread::yield();
  }
  EXPECT_EQ(begun, ended);
}

// Small batches in progress side by side share the limit of groups that are scored at once.
TEST_F(RewardRunnerTest, AllRoundsTogetherKeepTheLimit) {
  reward->at_once = 2;
  reward->say = [](const Task&, const Completion& c) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return number_of(c);
  };
  RewardRunner all(spec, 0);
  std::vector<std::unique_ptr<RewardRunner::ScoringRound>> rounds;
  for (size_t g = 0; g < groups.size(); ++g) {
    rounds.push_back(std::make_unique<RewardRunner::ScoringRound>(all, std::span(groups).subspan(g, 1)));
    rounds.back()->submit(0);
  }
  for (const auto& round : rounds) round->finish();
  EXPECT_EQ(reward->most, 2);
  EXPECT_EQ(sample(5, 3).reward, 53);
}

}  // namespace
}  // namespace hone::test
