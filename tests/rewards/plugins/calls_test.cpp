#include "rewards/plugins/calls.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/base/check.h"

namespace hone {
namespace {

using Calls = std::vector<std::pair<size_t, size_t>>;  // begin, count

struct Rig {
  PluginCalls calls;
  Calls made;
  std::vector<RewardScore> scores;

  // An item that `poison` selects makes its call fail. Every other item gets its number as score.
  void score(size_t count, std::function<bool(size_t item)> poison) {
    scores.assign(count, {});
    calls.score(scores, [&](size_t begin, std::span<RewardScore> some) {
      made.emplace_back(begin, some.size());
      for (size_t i = 0; i < some.size(); ++i) HONE_CHECK(!poison(begin + i), "item ", begin + i);
      for (size_t i = 0; i < some.size(); ++i) some[i].score = static_cast<double>(begin + i);
    });
  }
};

TEST(PluginCalls, AGroupIsOneCallOrAsManyAsItsBatchesAre) {
  Rig rig;
  rig.score(7, [](size_t) { return false; });
  EXPECT_EQ(rig.made, (Calls{{0, 7}}));
  rig.made.clear();
  rig.calls.batch_size = 3;
  rig.score(7, [](size_t) { return false; });
  EXPECT_EQ(rig.made, (Calls{{0, 3}, {3, 3}, {6, 1}}));
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(rig.scores[i].score, static_cast<double>(i));
  rig.made.clear();
  rig.score(0, [](size_t) { return false; });
  EXPECT_TRUE(rig.made.empty());
}

TEST(PluginCalls, AFailingItemIsFoundByRetryingEachAlone) {
  Rig rig;
  rig.score(4, [](size_t item) { return item == 2; });
  EXPECT_EQ(rig.made, (Calls{{0, 4}, {0, 1}, {1, 1}, {2, 1}, {2, 1}, {3, 1}}));
  for (const size_t i : {0, 1, 3}) {
    EXPECT_FALSE(rig.scores[i].failed);
    EXPECT_EQ(rig.scores[i].score, static_cast<double>(i));
  }
  EXPECT_TRUE(rig.scores[2].failed);
  EXPECT_EQ(rig.scores[2].note, "item 2");
}

TEST(PluginCalls, WithoutRetriesACallThatFailsIsFinal) {
  Rig rig;
  rig.calls.retries = 0;
  rig.score(2, [](size_t item) { return item == 1; });
  EXPECT_EQ(rig.made, (Calls{{0, 2}}));
  for (const RewardScore& score : rig.scores) EXPECT_EQ(score.note, "item 1");
}

TEST(PluginCalls, ADeadPluginIsNotRetriedForEachCompletion) {
  Rig rig;
  rig.score(8, [](size_t) { return true; });
  EXPECT_EQ(rig.made.size(), 1 + 4 * 2u);  // the call, and two retries for each of four
  for (const RewardScore& score : rig.scores) EXPECT_TRUE(score.failed);
  rig.made.clear();
  rig.score(8, [](size_t) { return true; });
  EXPECT_EQ(rig.made.size(), 1u);
  rig.score(8, [](size_t) { return false; });  // the plug-in works again
  rig.made.clear();
  rig.score(2, [](size_t item) { return item == 0; });
  EXPECT_EQ(rig.made.size(), 1 + 2 + 1u);
}

TEST(PluginCalls, WaitsBeforeAnAttempt) {
  Rig rig;
  rig.calls.retry_delay = 0.02;
  const auto begin = std::chrono::steady_clock::now();
  rig.score(1, [](size_t) { return true; });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(40));
}

}  // namespace
}  // namespace hone
