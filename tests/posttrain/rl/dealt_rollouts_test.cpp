// Rollouts on several ranks: the groups, metrics and errors of one rank.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "core/base/stopwatch.h"
#include "core/config/config.h"
#include "posttrain/rl/group_bytes.h"
#include "posttrain/rl/rollout_batch.h"
#include "posttrain/rl/rollout_queue.h"
#include "tests/model/characters.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace hone::test {
namespace {

// The score is the length of the completion. It fails, or throws, for the tasks named here. Counts its calls.
class Length : public Reward {
 public:
  std::string fails, throws;
  mutable std::atomic<int> groups{0};
  RewardScore score(const Task& task, const Completion& completion) const override {
    if (throws.find(task.id) != std::string::npos) fail("no score for ", task.id);
    return {.score = static_cast<double>(completion.ids.size()) / 3,
            .note = concat("the judge lost ", task.id),
            .failed = fails.find(task.id) != std::string::npos};
  }
  void score_group(const Task& task, std::span<const Completion> completions,
                   std::span<RewardScore> scores) const override {
    ++groups;
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = score(task, completions[i]);
  }
};

class DealtRolloutsTest : public ::testing::Test {
 protected:
  DealtRolloutsTest() {
    const char* prompts[] = {"ab", "12 3", "c.", "a long prompt", "3", "1 + 2"};
    for (size_t i = 0; i < std::size(prompts); ++i) {
      Task& task = tasks.emplace_back();
      task.id = concat("t", i);
      task.prompt = prompts[i];
    }
    config.num_generations = 3;
    config.sampling.max_tokens = 5;
    config.sampling.temperature = 0.7;
    config.max_failure_rate = 0.4;
    config.reward.reward.set("length", reward);
  }

  struct Collected {
    std::string groups, error;
    Metrics metrics;
    int64_t failed = 0;
    bool operator==(const Collected&) const = default;
  };
  // The first `count` tasks, on ranks that each have a model and an engine; what each rank got.
  std::vector<Collected> collect(int num_ranks, size_t count) {
    std::vector<Collected> out(static_cast<size_t>(num_ranks));
    on_ranks(num_ranks, [&](const Ranks& ranks, Context& context) {
      const std::unique_ptr<Model> model = character_model(context, tokenizer);
      LocalBackend sampler(context, *model, tokenizer, {});
      Collector collector(sampler, tokenizer, config, ranks.control());
      std::vector<const Task*> asked;
      for (size_t i = 0; i < count; ++i) asked.push_back(&tasks[i]);
      Collected& own = out[static_cast<size_t>(ranks.rank())];
      own.error = error_of([&] {
        for (const uint64_t first : {7, 1000}) own.groups += pack_groups(collector.gather(asked, first));
      });
      own.metrics = collector.metrics();
      own.failed = collector.failed_completions();
    });
    return out;
  }
  void expect_the_same(size_t count) {
    const Collected one = collect(1, count).front();
    for (const int num_ranks : {2, 3})
      for (const Collected& of : collect(num_ranks, count)) {
        EXPECT_EQ(of.error, one.error) << num_ranks;
        EXPECT_TRUE(of.groups == one.groups) << num_ranks;
        EXPECT_EQ(of.metrics, one.metrics) << num_ranks;
        EXPECT_EQ(of.failed, one.failed) << num_ranks;
      }
  }

  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
  std::vector<Task> tasks;
  CollectorConfig config;
  std::shared_ptr<Length> reward = std::make_shared<Length>();
};

TEST_F(DealtRolloutsTest, GroupsDoNotDependOnTheRankThatSamplesThem) { expect_the_same(6); }

TEST_F(DealtRolloutsTest, RanksWithoutATaskGetTheGroups) {
  expect_the_same(1);
  expect_the_same(2);
}

TEST_F(DealtRolloutsTest, EachGroupIsScoredOnce) {
  collect(3, 5);
  EXPECT_EQ(reward->groups, 2 * 5);
}

TEST_F(DealtRolloutsTest, CompletionsThatCannotBeSampledAreCountedOverRanks) {
  tasks[1].prompt = std::string(50, 'a');
  tasks[4].prompt = std::string(60, 'b');
  expect_the_same(6);
  EXPECT_EQ(collect(2, 6)[1].failed, 2 * 2 * 3);
}

// 2 of 6 groups are below the limit of 0.4; on a rank with both they would be 2 of 3.
TEST_F(DealtRolloutsTest, TheLimitOfFailuresAppliesToTheSumOverRanks) {
  reward->fails = "t1 t3";
  EXPECT_EQ(collect(2, 6)[0].error, "no error");
  expect_the_same(6);
  reward->fails = "t1 t3 t4";
  expect_the_same(6);
  EXPECT_EQ(collect(3, 6)[2].error,
            "reward length: 9 of 18 completions could not be scored, max_reward_failure_rate is 0.4; t1: the judge "
            "lost t1");
}

TEST_F(DealtRolloutsTest, ARewardThatThrowsOnOneRankIsAnErrorOfAllThatOfTheFirstTask) {
  for (const char* tasks_of_one : {"t1", "t4 t3", "t5 t0"}) {
    reward->throws = tasks_of_one;
    expect_the_same(6);
  }
  reward->throws = "t4 t3";
  EXPECT_EQ(collect(2, 6)[0].error, "no score for t3");
}

TEST_F(DealtRolloutsTest, RanksWithOtherTasksAreAnError) {
  const std::string error = error_of([&] {
    on_ranks(2, [&](const Ranks& ranks, Context& context) {
      const std::unique_ptr<Model> model = character_model(context, tokenizer);
      LocalBackend sampler(context, *model, tokenizer, {});
      Collector collector(sampler, tokenizer, config, ranks.control());
      const std::vector<const Task*> asked{&tasks[0], &tasks[ranks.is_first() ? 1 : 2]};
      collector.gather(asked, 0);
    });
  });
  EXPECT_NE(error.find("the ranks have different tasks"), std::string::npos) << error;
}

// Batches ahead of the learner, on threads of their own.
class DealtQueueTest : public DealtRolloutsTest {
 protected:
  // Fails on one rank under a version.
  class Failing final : public GenerationBackend {
   public:
    Failing(GenerationBackend& of, int64_t fail_at) : of_(of), fail_at_(fail_at) {}
    uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish) override {
      return of_.submit(std::move(request), std::move(on_finish));
    }
    void cancel(uint64_t ticket) override { of_.cancel(ticket); }
    bool step() override {
      HONE_CHECK(fail_at_ < 0 || of_.version() < fail_at_, "its device is lost");
      return of_.step();
    }
    void set_policy_version(int64_t version) override { of_.set_policy_version(version); }
    int64_t version() const override { return of_.version(); }
    Metrics metrics() override { return of_.metrics(); }

   private:
    GenerationBackend& of_;
    int64_t fail_at_;
  };

  // The batches of `steps` steps as each rank got them. The weights never change.
  std::vector<std::string> run(int num_ranks, int64_t max_staleness, int64_t steps, int64_t fail_at = -1) {
    std::vector<std::string> out(static_cast<size_t>(num_ranks));
    on_ranks(num_ranks, [&](const Ranks& ranks, Context& context) {
      const std::unique_ptr<Model> model = character_model(context, tokenizer);
      LocalBackend engine(context, *model, tokenizer, {});
      const int64_t own_fail_at = ranks.rank() == ranks.size() - 1 ? fail_at : -1;
      std::unique_ptr<ControlChannel> ahead;
      if (max_staleness > 0 && ranks.control()) ahead = ranks.control()->split();
      TaskSchedule schedule(Config::from_text(settings, "test").as<TaskScheduleConfig>(), tasks, 5);
      RolloutQueue queue({.max_staleness = max_staleness}, config, tokenizer, schedule, planned_steps,
                         {.make = [&] { return std::make_unique<Failing>(engine, own_fail_at); },
                          .keep = [](int64_t) {},
                          .ranks = ahead ? ahead.get() : ranks.control()});
      std::string& own = out[static_cast<size_t>(ranks.rank())];
      for (int64_t step = 0; step < steps; ++step) {
        const RolloutQueue::NextBatch batch = queue.next(step);
        own += pack_groups(batch.groups);
        for (const auto& [name, value] : batch.metrics)
          if (!name.starts_with("time/") && !name.starts_with("queue/") && !name.ends_with("idle_ratio") &&
              !name.ends_with("per_second"))
            own += concat(name, "=", value, ";");
      }
    });
    return out;
  }
  static constexpr int64_t planned_steps = 6;
  std::string settings = "prompts_per_step = 4";
};

TEST_F(DealtQueueTest, BatchesAndTheirMetricsAreThoseOfOneRank) {
  for (const char* with : {"prompts_per_step = 4", "prompts_per_step = 1",
                           "prompts_per_step = 3\nfilter_groups = {enable = true, max_num_gen_batches = 3}"})
    for (const int64_t max_staleness : {0, 2}) {
      settings = with;
      const std::string one = run(1, max_staleness, planned_steps).front();
      for (const int num_ranks : {2, 3})
        for (const std::string& of : run(num_ranks, max_staleness, planned_steps))
          EXPECT_TRUE(of == one) << with << ", " << max_staleness << ", " << num_ranks;
    }
}

// The other ranks' threads are in the middle of a batch then.
TEST_F(DealtQueueTest, AStageThatEndsEarlyEndsTheBatchesAhead) {
  const Stopwatch watch;
  for (int i = 0; i < 3; ++i) run(3, 2, 1);
  EXPECT_LT(watch.seconds(), 15);
}

TEST_F(DealtQueueTest, AnEngineThatFailsOnOneRankEndsTheRunWithItsMessage) {
  for (const int64_t max_staleness : {0, 1}) {
    const Stopwatch watch;
    const std::string error = error_of([&] { run(2, max_staleness, planned_steps, 2); });
    EXPECT_NE(error.find("rank 1 (cpu): its device is lost"), std::string::npos) << error;
    EXPECT_LT(watch.seconds(), 10);
  }
}

TEST_F(DealtQueueTest, ManyFailedRewardsEndTheBatchesAheadOnAllRanksAlike) {
  reward->fails = "t0 t1 t2 t3 t4 t5";
  for (const int64_t max_staleness : {0, 1}) {
    std::vector<std::string> errors(3);
    on_ranks(3, [&](const Ranks& ranks, Context& context) {
      const std::unique_ptr<Model> model = character_model(context, tokenizer);
      LocalBackend engine(context, *model, tokenizer, {});
      std::unique_ptr<ControlChannel> ahead = ranks.control()->split();
      TaskSchedule schedule(Config::from_text(settings, "test").as<TaskScheduleConfig>(), tasks, 5);
      RolloutQueue queue({.max_staleness = max_staleness}, config, tokenizer, schedule, planned_steps,
                         {.make = [&] { return std::make_unique<Failing>(engine, -1); },
                          .keep = [](int64_t) {},
                          .ranks = max_staleness > 0 ? ahead.get() : ranks.control()});
      errors[static_cast<size_t>(ranks.rank())] = error_of([&] { queue.next(0); });
    });
    for (const std::string& error : errors)
      EXPECT_EQ(error.find("reward length: 12 of 12 completions could not be scored"), 0u) << error;
  }
}

}  // namespace
}  // namespace hone::test
