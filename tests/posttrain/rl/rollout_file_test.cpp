#include "posttrain/rl/rollout_file.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

// Two prompt tokens and three completion tokens; the second one of these was forced.
Sample make_sample() {
  Sample out;
  out.tokens = {5, 6, 7, 8, 9};
  out.completion = {{7, 8, 9}, "abc", "stop"};
  out.reward = 0.5;
  out.reward_parts = {{"math", 1.0}, {"format", 0.0}};
  out.columns.set(columns::mask, {0, 0, 1, 0, 1});
  out.columns.set(columns::behavior_logp, {0, 0, -0.5f, 0, -0.25f});
  out.columns.set(columns::advantage, {0, 0, 0.75f, 0, 0.75f});
  out.versions = {3, 3, 3, 3, 3};
  out.weight_version = 3;
  return out;
}

Task make_task() {
  Task out;
  out.id = "t1";
  out.prompt = "2+2?";
  out.rendered = "<user>2+2?";
  out.answer = "4";
  return out;
}

TEST(RolloutFile, ARowHasEverythingOfACompletion) {
  EXPECT_EQ(
      rollout_row(7, 2, make_task(), make_sample()).dump(),
      R"({"step": 7, "task": "t1", "group": 2, "prompt": "<user>2+2?", "prompt_ids": [5, 6], "completion": "abc", )"
      R"("completion_ids": [7, 8, 9], "answer": "4", "finish_reason": "stop", "reward": 0.5, )"
      R"("rewards": {"format": 0.0, "math": 1.0}, "advantage": 0.75, "logp": [-0.5, 0.0, -0.25], "version": 3, )"
      R"("mask": [1, 0, 1]})");
}

TEST(RolloutFile, WhatDiffersBetweenTokensIsAnArray) {
  Sample sample = make_sample();
  sample.columns.set(columns::advantage, {0, 0, 0.75f, 0, -1});
  sample.versions = {2, 2, 2, 3, 3};
  sample.weight_version = 2;
  sample.scored = false;
  const Json row = rollout_row(1, 0, make_task(), sample);
  EXPECT_EQ(row.at("advantage").dump(), "[0.75, 0.0, -1.0]");
  EXPECT_EQ(row.at("versions").dump(), "[2, 3, 3]");
  EXPECT_EQ(row.at("version").as_int(), 2);
  EXPECT_TRUE(row.at("reward").is_null());
}

TEST(RolloutFile, ACompletionWithoutAdvantagesHasNone) {
  Sample sample = make_sample();
  sample.columns.erase(columns::advantage);
  EXPECT_TRUE(rollout_row(1, 0, make_task(), sample).at("advantage").is_null());
}

TEST(RolloutFile, AStepIsOneFileWithTheSameBytesAgain) {
  const TemporaryFolder folder;
  const std::vector<Group> groups{{make_task(), {make_sample(), make_sample()}}, {make_task(), {make_sample()}}};
  const std::filesystem::path path = folder.path() / "rollouts" / "step-12.jsonl.gz";
  write_rollouts(folder.path(), 12, groups);
  const std::string first = read_beginning(path, 1 << 16);
  write_rollouts(folder.path(), 12, groups);
  EXPECT_EQ(read_beginning(path, 1 << 16), first);
  std::vector<int64_t> group_of_row;
  read_jsonl(path, [&](const Json& row, int64_t) { group_of_row.push_back(row.at("group").as_int()); });
  EXPECT_EQ(group_of_row, (std::vector<int64_t>{0, 0, 1}));
}

}  // namespace
}  // namespace hone::test
