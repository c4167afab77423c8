#include "posttrain/rl/reward_watch.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

// Groups of completions with these rewards; each also has a part "format".
std::vector<Group> groups_of(const std::vector<std::vector<double>>& rewards, double format = 0) {
  std::vector<Group> out;
  for (const std::vector<double>& group : rewards) {
    out.emplace_back();
    for (const double reward : group) {
      Sample& sample = out.back().samples.emplace_back();
      sample.reward = reward;
      sample.reward_parts = {{"format", format}};
    }
  }
  return out;
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

std::string log_of(const std::vector<std::vector<Group>>& steps) {
  ::testing::internal::CaptureStderr();
  RewardWatch watch;
  for (const std::vector<Group>& step : steps) watch.observe(step);
  return ::testing::internal::GetCapturedStderr();
}

TEST(RewardWatch, SaysOnceThatNoGroupsRewardsDiffer) {
  const std::string log =
      log_of({groups_of({{1, 1}, {0, 0}}, 0), groups_of({{1, 1}, {0, 0}}, 1), groups_of({{0, 0}, {1, 1}}, 0),
              groups_of({{0, 0}, {1, 1}}, 1), groups_of({{0, 0}, {1, 1}}, 0)});
  EXPECT_EQ(count_of(log, "every group had zero variance"), 1u) << log;
  EXPECT_EQ(count_of(log, "never varies"), 0u) << log;
}

TEST(RewardWatch, SaysOnceWhichRewardNeverVaries) {
  const std::string log = log_of(std::vector(5, groups_of({{0, 1}, {0, 1}}, 0.5)));
  EXPECT_EQ(count_of(log, "the reward's part 'format' was 0.5"), 1u) << log;
  EXPECT_EQ(count_of(log, "zero variance"), 0u) << log;
  const std::string constant = log_of(std::vector(5, groups_of({{0, 0}, {0, 0}}, 0)));
  EXPECT_EQ(count_of(constant, "the reward was 0 for every completion"), 1u) << constant;
}

TEST(RewardWatch, IsSilentWhereRewardsTellCompletionsApart) {
  // Two steps in a row do not warn. A step with a spread restarts the count. A group of one has nothing to compare.
  const std::vector<Group> flat = groups_of({{1, 1}, {0, 0}}, 0), differs = groups_of({{1, 0}, {0, 0}}, 1);
  EXPECT_EQ(log_of({flat, flat, differs, flat, flat, differs}), "");
  EXPECT_EQ(
      log_of({groups_of({{1}, {0}}, 0), groups_of({{1}, {0}}, 1), groups_of({{1}, {0}}, 0), groups_of({{1}, {0}}, 1)}),
      "");
}

TEST(RewardWatch, UnjudgedCompletionsCountForNothing) {
  std::vector<Group> groups = groups_of({{1, 1}, {0, 0}}, 0);
  groups[0].samples.emplace_back().reward = 7;
  groups[0].samples.back().scored = false;
  EXPECT_EQ(count_of(log_of(std::vector(3, groups)), "every group had zero variance"), 1u);
}

}  // namespace
}  // namespace hone
