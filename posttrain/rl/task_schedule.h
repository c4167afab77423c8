#pragma once
// TaskSchedule: which tasks each rollout batch takes, and which of the groups are trained on.
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "data/sample.h"
#include "posttrain/rl/curriculum.h"

namespace hone {

// Dynamic sampling (DAPO: Yu et al. 2025, section 3.2), by verl's names: groups whose replies all earn the same are
// dropped, and other tasks asked.
struct FilterGroups {
  bool enable = false;
  std::string metric;  // what must differ: the reward, or the part of it by this name
  int64_t max_num_gen_batches = 10;
  void fields(Fields& f);
};

struct TaskScheduleConfig {
  int64_t prompts_per_step = 16;
  FilterGroups filter_groups;
  CurriculumConfig curriculum;
  void fields(Fields& f);
};

// Two judged replies of the group differ in the metric.
bool has_reward_spread(const Group& group, const std::string& metric);

// A task that is asked: drawn in this epoch of the order; `id` is the request's, which decides the draws.
struct ScheduledTask {
  int64_t task = 0, epoch = 0;
  uint64_t id = 0;
};

// A round of experience on its way.
struct PendingTasks {
  std::vector<ScheduledTask> tasks;  // in order
  std::vector<Group> kept, dropped;
  int64_t batches = 0;
  double reward = 0, scored = 0;      // sum and number of judged replies
  std::vector<double> passed, rated;  // of each whose group is there: judged replies that passed, and judged replies
};

// State: the order's position, the curriculum, and what was asked and never learned from. Several rounds may be on
// their way at once; they are finished in the order they were begun in.
class TaskSchedule : public Stateful {
 public:
  // The tasks are the caller's and must outlive it.
  TaskSchedule(const TaskScheduleConfig& config, std::span<const Task> tasks, uint64_t seed);

  // What the round asks next: prompts_per_step tasks, then, with filter_groups, as many as groups are missing until all
  // differ or max_num_gen_batches were asked for. Nothing: the round is whole.
  std::vector<ScheduledTask> next_tasks(PendingTasks& round);
  // The judged groups of what was asked last, in order.
  void take(PendingTasks& round, std::vector<Group> groups);
  // A whole round's prompts_per_step groups; where too few differ, the first that were dropped fill it up, with a
  // warning. The curriculum learns what passed. Adds filter_groups/{num_gen_batches, kept_ratio, reward: of all that
  // was sampled}, the counts of samples that were dropped, and the curriculum's metrics.
  std::vector<Group> finish(PendingTasks round, Metrics& metrics);
  // Nothing of the rounds will be learned from: what they asked is asked again, first and by the same numbers.
  void abandon(std::span<const PendingTasks> rounds);

  const Task& task(const ScheduledTask& asked) const { return tasks_[static_cast<size_t>(asked.task)]; }
  const Task& task(const std::string& id) const;  // an Error if there is none
  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  TaskScheduleConfig config_;
  std::span<const Task> tasks_;
  IndexLoader order_;
  Curriculum curriculum_;
  std::deque<ScheduledTask> again_;
};

}  // namespace hone
