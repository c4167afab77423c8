// prompt_lookup(): which n-gram match it chooses.
#include "rollout/speculative/prompt_lookup.h"

#include <gtest/gtest.h>

#include <vector>

namespace hone {
namespace {

using Ids = std::vector<int32_t>;

Ids found(const Ids& tokens, int64_t shortest, int64_t longest) {
  const auto out = prompt_lookup(tokens, shortest, longest);
  return {out.begin(), out.end()};
}

TEST(PromptLookup, ATextWithoutRepetitionHasNoMatch) {
  EXPECT_EQ(found({}, 1, 3), Ids());
  EXPECT_EQ(found({4}, 1, 3), Ids());
  EXPECT_EQ(found({1, 2, 3, 4}, 1, 3), Ids());
}

TEST(PromptLookup, ReturnsWhatFollowedTheSameTokens) {
  EXPECT_EQ(found({1, 2, 3, 4, 1, 2, 3}, 2, 2), Ids({4, 1, 2, 3}));
  EXPECT_EQ(found({1, 2, 3, 4, 1, 2, 3, 5, 6}, 2, 2), Ids());
}

TEST(PromptLookup, TheLongestMatchWinsAndOfEqualOnesTheFirst) {
  EXPECT_EQ(found({7, 3, 5, 2, 3, 6, 2, 3}, 1, 4).front(), 6);  // 2 3, not 3 alone
  EXPECT_EQ(found({7, 3, 5, 2, 3, 6, 2, 3}, 1, 1).front(), 5);
  EXPECT_EQ(found({2, 3, 5, 2, 3, 6, 2, 3}, 1, 4).front(), 5);
}

TEST(PromptLookup, AMatchMayOverlapTheEnd) { EXPECT_EQ(found({9, 9, 9, 9}, 1, 2), Ids({9, 9})); }

TEST(PromptLookup, MatchesBelowTheMinimumDoNotCount) {
  EXPECT_EQ(found({1, 2, 9, 2}, 2, 4), Ids());
  EXPECT_EQ(found({1, 2}, 2, 4), Ids());
  EXPECT_EQ(found({1, 2, 9, 1, 2}, 2, 4), Ids({9, 1, 2}));
}

}  // namespace
}  // namespace hone
