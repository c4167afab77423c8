#include "posttrain/rl/shared_rollouts.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace hone::test {
namespace {

std::vector<Task> tasks() {
  std::vector<Task> out(3);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].id = concat("task-", i);
    out[i].prompt = "2 + 2";
  }
  return out;
}

Sample sample_of(size_t tokens, size_t completion, double reward) {
  Sample out;
  for (size_t i = 0; i < tokens; ++i) {
    out.tokens.push_back(static_cast<int32_t>(i * 7 % 50));
    out.versions.push_back(static_cast<int64_t>(3 + i % 2));
  }
  out.columns.assign(columns::mask, tokens, 1);
  out.columns.assign(columns::behavior_logp, tokens, -0.1f);
  out.columns[columns::behavior_logp][tokens - 1] = -1.2345678f;
  out.weight_version = 3;
  out.reward = reward;
  out.reward_parts["number"] = reward;
  out.counts["rewards/skipped"] = 1;
  out.completion.ids.assign(out.tokens.end() - static_cast<std::ptrdiff_t>(completion), out.tokens.end());
  out.completion.text = "four\n\"4\"";
  out.completion.finish_reason = "stop";
  return out;
}

TEST(SharedRollouts, GroupsArriveAsTheyWere) {
  const std::vector<Task> all = tasks();
  const TaskSchedule schedule({}, all, 1);
  std::vector<Group> groups(2);
  groups[0].task = all[2];
  groups[0].task.rendered = "<s>2 + 2";
  groups[0].samples = {sample_of(9, 4, 1.0 / 3), sample_of(5, 1, 0)};
  groups[1].task = all[0];
  groups[1].samples = {sample_of(7, 3, -2)};
  const std::vector<Group> there = unpack_groups(pack_groups(groups), schedule);
  ASSERT_EQ(there.size(), 2u);
  EXPECT_EQ(pack_groups(there), pack_groups(groups));
  EXPECT_EQ(there[0].task.id, "task-2");
  EXPECT_EQ(there[0].task.rendered, "<s>2 + 2");
  EXPECT_EQ(there[0].samples[0].reward, 1.0 / 3);
  EXPECT_EQ(there[0].samples[0].tokens, groups[0].samples[0].tokens);
  EXPECT_EQ(there[1].samples[0].completion.text, "four\n\"4\"");
  EXPECT_EQ(there[1].samples[0].weight_version, 3);
  EXPECT_TRUE(unpack_groups(pack_groups({}), schedule).empty());
}

TEST(SharedRollouts, DamagedBytesAreErrors) {
  const std::vector<Task> all = tasks();
  const TaskSchedule schedule({}, all, 1);
  std::vector<Group> groups(1);
  groups[0].task = all[1];
  groups[0].samples = {sample_of(9, 4, 1)};
  const std::string bytes = pack_groups(groups);
  for (size_t length = 0; length < bytes.size(); length += 5)
    EXPECT_NE(error_of([&] { unpack_groups(std::string_view(bytes).substr(0, length), schedule); }), "no error")
        << length;
}

}  // namespace
}  // namespace hone::test
