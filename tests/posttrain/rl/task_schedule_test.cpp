#include "posttrain/rl/task_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/config/config.h"

namespace hone {
namespace {

class TaskScheduleTest : public ::testing::Test {
 protected:
  TaskScheduleTest() : tasks(10) {
    for (size_t i = 0; i < tasks.size(); ++i) tasks[i].id = std::to_string(i);
  }
  TaskSchedule make(const std::string& settings = "") const {
    return TaskSchedule(Config::from_text(settings, "test").as<TaskScheduleConfig>(), tasks, 7);
  }

  // Groups of two completions; those of the tasks in `solved` are both right, of the others one is.
  std::vector<Group> judge(const TaskSchedule& rounds, const std::vector<ScheduledTask>& asked) {
    std::vector<Group> out;
    batches.emplace_back();
    ids.emplace_back();
    for (const ScheduledTask& one : asked) {
      const Task& task = rounds.task(one);
      batches.back().push_back(task.id);
      ids.back().push_back(one.id);
      Group& group = out.emplace_back();
      group.task = task;
      group.samples.resize(2);
      group.samples[0].reward = 1;
      group.samples[1].reward = solved.contains(task.id) ? 1 : 0;
      for (Sample& sample : group.samples) sample.reward_parts["format"] = 1, sample.counts["rewards/skipped"] = 1;
    }
    return out;
  }
  std::vector<std::string> next(TaskSchedule& rounds) {
    metrics.clear();
    PendingTasks round;
    for (std::vector<ScheduledTask> asked = rounds.next_tasks(round); !asked.empty(); asked = rounds.next_tasks(round))
      rounds.take(round, judge(rounds, asked));
    std::vector<std::string> out;
    for (const Group& group : rounds.finish(std::move(round), metrics)) out.push_back(group.task.id);
    return out;
  }
  std::vector<std::string> order() const {  // of the first two epochs
    std::vector<std::string> out;
    IndexLoader loader(10, 7);
    for (int i = 0; i < 20; ++i) out.push_back(std::to_string(loader.next()));
    return out;
  }

  std::vector<Task> tasks;
  std::set<std::string> solved;
  std::vector<std::vector<std::string>> batches;
  std::vector<std::vector<uint64_t>> ids;
  Metrics metrics;
};

std::vector<std::string> slice(const std::vector<std::string>& of, std::ptrdiff_t begin, std::ptrdiff_t end) {
  return {of.begin() + begin, of.begin() + end};
}

TEST_F(TaskScheduleTest, AskTheTasksInTheirOrderAndNumberTheRequestsThroughout) {
  TaskSchedule rounds = make("prompts_per_step = 4");
  solved = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};  // equal rewards are no matter here
  for (std::ptrdiff_t round = 0; round < 5; ++round) EXPECT_EQ(next(rounds), slice(order(), 4 * round, 4 * round + 4));
  for (uint64_t round = 0; round < 5; ++round)
    EXPECT_EQ(ids[round], (std::vector<uint64_t>{4 * round, 4 * round + 1, 4 * round + 2, 4 * round + 3}));
  EXPECT_TRUE(metrics.empty());
}

TEST_F(TaskScheduleTest, GroupsOfEqualRewardAreReplacedByAsManyOthers) {
  const std::vector<std::string> in_order = order();
  solved = {in_order[1], in_order[2], in_order[4]};
  TaskSchedule rounds = make("prompts_per_step = 4\nfilter_groups = { enable = true }");
  EXPECT_EQ(next(rounds), (std::vector<std::string>{in_order[0], in_order[3], in_order[5], in_order[6]}));
  EXPECT_EQ(batches, (std::vector<std::vector<std::string>>{slice(in_order, 0, 4), slice(in_order, 4, 6),
                                                            slice(in_order, 6, 7)}));
  EXPECT_EQ(ids, (std::vector<std::vector<uint64_t>>{{0, 1, 2, 3}, {4, 5}, {6}}));
  EXPECT_EQ(metrics.at("filter_groups/num_gen_batches"), 3);
  EXPECT_DOUBLE_EQ(metrics.at("filter_groups/kept_ratio"), 4.0 / 7);
  EXPECT_DOUBLE_EQ(metrics.at("filter_groups/reward"), (3 * 1 + 4 * 0.5) / 7);
  EXPECT_EQ(metrics.at("rewards/skipped"), 6);  // of the three dropped groups: the others carry their own
}

TEST_F(TaskScheduleTest, AtTheBoundTheFirstDroppedFillTheRoundUp) {
  const std::vector<std::string> in_order = order();
  for (size_t i = 0; i < 10; ++i)
    if (i != 1) solved.insert(in_order[i]);
  TaskSchedule rounds = make("prompts_per_step = 3\nfilter_groups = { enable = true, max_num_gen_batches = 2 }");
  EXPECT_EQ(next(rounds), (std::vector<std::string>{in_order[1], in_order[0], in_order[2]}));
  EXPECT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches.back(), slice(in_order, 3, 5));
  EXPECT_EQ(next(rounds).size(), 3u);  // and the next round goes on behind
  EXPECT_EQ(batches[2], slice(in_order, 5, 8));
}

TEST_F(TaskScheduleTest, WhatDiffersMayBeAPartOfTheReward) {
  TaskSchedule rounds =
      make("prompts_per_step = 2\nfilter_groups = { enable = true, metric = 'format', max_num_gen_batches = 3 }");
  next(rounds);
  EXPECT_EQ(batches.size(), 3u);
  EXPECT_EQ(metrics.at("filter_groups/kept_ratio"), 0);
}

TEST_F(TaskScheduleTest, APartThatTheRewardDoesNotHaveIsAnErrorThatListsThem) {
  TaskSchedule rounds = make("filter_groups = { enable = true, metric = 'fromat' }");
  try {
    next(rounds);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no part 'fromat'; it has format"), std::string::npos) << error.what();
  }
}

TEST_F(TaskScheduleTest, UnjudgedCompletionsDoNotMakeAGroupDiffer) {
  Group group;
  EXPECT_FALSE(has_reward_spread(group, ""));
  group.samples.resize(3);
  group.samples[0].reward = 1, group.samples[1].reward = 1, group.samples[2].scored = false;
  EXPECT_FALSE(has_reward_spread(group, ""));
  group.samples[1].reward = 0.5;
  EXPECT_TRUE(has_reward_spread(group, ""));
  EXPECT_FALSE(has_reward_spread(group, "a part that no reply has"));
}

TEST_F(TaskScheduleTest, WhatTheCurriculumSetsAsideIsNotAsked) {
  const std::vector<std::string> in_order = order();
  solved = {in_order[0], in_order[3]};
  TaskSchedule rounds = make("prompts_per_step = 10\ncurriculum = { revisit_epochs = 2 }");
  next(rounds);
  EXPECT_EQ(metrics.at("curriculum/easy"), 2);
  EXPECT_EQ(metrics.at("curriculum/active"), 8);
  EXPECT_DOUBLE_EQ(metrics.at("curriculum/pass_rate"), 0.6);
  std::vector<std::string> expected = slice(in_order, 10, 20);
  std::erase_if(expected, [&](const std::string& id) { return solved.contains(id); });
  const std::vector<std::string> second = next(rounds);
  EXPECT_EQ(slice(second, 0, 8), expected);  // and two of the third epoch
}

TEST_F(TaskScheduleTest, WhatIsAbandonedIsAskedAgainByTheSameNumbers) {
  const std::string settings =
      "prompts_per_step = 3\nfilter_groups = { enable = true }\ncurriculum = { revisit_epochs = 2 }";
  solved = {order()[0]};
  TaskSchedule rounds = make(settings), fresh = make(settings);
  PendingTasks late, behind;  // of the first, the second batch fails; the second is on its way by then
  rounds.take(late, judge(rounds, rounds.next_tasks(late)));
  rounds.next_tasks(behind);
  rounds.next_tasks(late);
  rounds.abandon(std::vector<PendingTasks>{late, behind});
  batches.clear(), ids.clear();
  StateSection section;
  rounds.save_state(section);
  TaskSchedule resumed = make(settings);
  resumed.load_state(section);
  std::vector<std::string> asked;
  for (int i = 0; i < 3; ++i) {
    next(resumed);
    for (const auto& batch : batches) asked.insert(asked.end(), batch.begin(), batch.end());
    batches.clear();
  }
  std::sort(asked.begin(), asked.end());
  EXPECT_TRUE(std::adjacent_find(asked.begin(), asked.end()) == asked.end()) << "a task of one epoch was asked twice";
  const std::vector<std::vector<uint64_t>> again = std::exchange(ids, {});
  EXPECT_EQ(again[0], (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(next(fresh), (std::vector<std::string>{order()[1], order()[2], order()[3]}));
  EXPECT_EQ(ids[0], again[0]);
}

TEST_F(TaskScheduleTest, ARoundThatFailsAloneIsAskedAsIfItHadNot) {
  const std::string settings = "prompts_per_step = 3\nfilter_groups = { enable = true }";
  solved = {order()[0], order()[4]};
  TaskSchedule rounds = make(settings), fresh = make(settings);
  PendingTasks failed;
  rounds.take(failed, judge(rounds, rounds.next_tasks(failed)));
  rounds.next_tasks(failed);
  rounds.abandon(std::span(&failed, 1));
  ids.clear();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(next(rounds), next(fresh));
}

TEST_F(TaskScheduleTest, AStateThatAsksForATaskThatIsNotThereIsRefused) {
  TaskSchedule rounds = make("prompts_per_step = 3");
  StateSection section;
  rounds.save_state(section);
  section.values.set("asked_again", JsonArray{JsonArray{int64_t{10}, int64_t{0}, int64_t{0}}});
  EXPECT_THROW(rounds.load_state(section), Error);
  section.values.set("asked_again", JsonArray{JsonArray{int64_t{1}}});
  EXPECT_THROW(rounds.load_state(section), Error);
  EXPECT_THROW(rounds.task(std::string("no such task")), Error);
}

TEST_F(TaskScheduleTest, GoOnFromTheirState) {
  const std::string settings =
      "prompts_per_step = 3\nfilter_groups = { enable = true, max_num_gen_batches = 2 }\ncurriculum = { revisit_epochs "
      "= 2 }";
  solved = {"2", "5", "6"};
  TaskSchedule whole = make(settings), resumed = make(settings);
  for (int i = 0; i < 5; ++i) next(whole);
  StateSection section;
  whole.save_state(section);
  resumed.load_state(section);
  for (int i = 0; i < 6; ++i) {
    const std::vector<std::string> expected = next(whole);
    const Metrics expected_metrics = metrics;
    EXPECT_EQ(next(resumed), expected);
    EXPECT_EQ(metrics, expected_metrics);
  }
}

TEST(TaskScheduleConfig, RefusesWhatCannotBe) {
  for (const char* wrong : {"prompts_per_step = 0", "filter_groups = { max_num_gen_batches = 0 }"})
    EXPECT_THROW(Config::from_text(wrong, "test").as<TaskScheduleConfig>(), Error) << wrong;
}

}  // namespace
}  // namespace hone
