#pragma once
// TaskSchedule: selects the tasks of each rollout batch, and the groups to train on.
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "data/sample.h"
#include "posttrain/rl/curriculum.h"
#include "posttrain/rl/dynamic_sampling.h"

namespace hone {

struct TaskScheduleConfig {
  int64_t prompts_per_step = 16;
  FilterGroups filter_groups;
  CurriculumConfig curriculum;
  void fields(Fields& f);
};

// A task to sample, from this epoch of its source's order. `id` is the request's id, which decides its random numbers.
struct ScheduledTask {
  int64_t task = 0, epoch = 0;
  uint64_t id = 0;
};

// The tasks and groups of a rollout batch in progress.
struct PendingTasks {
  std::vector<ScheduledTask> tasks;  // in order
  std::vector<Group> kept, dropped;
  int64_t batches = 0;
  double reward = 0, scored = 0;      // sum of rewards and number of scored completions
  std::vector<double> passed, rated;  // of each group: scored completions that passed, and scored completions
};

// State: the position in the order, the curriculum, and tasks that were scheduled and never trained on. Several batches
// may be in progress at once; they finish in the order in which they started.
class TaskSchedule : public Stateful {
 public:
  // parts: the sources of the tasks, which stand source by source; empty: all tasks are of one. The tasks must outlive
  // this object.
  TaskSchedule(const TaskScheduleConfig& config, std::span<const Task> tasks, uint64_t seed,
               std::vector<MixturePart> parts = {});

  // Returns the next tasks of the batch: first prompts_per_step tasks; then, with filter_groups, one for each missing
  // group, until max_num_gen_batches were sampled. Empty: the batch is complete.
  std::vector<ScheduledTask> next_tasks(PendingTasks& pending);
  // Adds the scored groups of the last next_tasks(), in order.
  void take(PendingTasks& pending, std::vector<Group> groups);
  // Returns the prompts_per_step groups of a complete batch. If too few have a spread of rewards, it adds the first
  // dropped groups and logs a warning. Updates the curriculum. Adds filter_groups/{num_gen_batches, kept_ratio, reward:
  // of all sampled groups}, the counts of dropped samples, and the curriculum's metrics.
  std::vector<Group> finish(PendingTasks pending, Metrics& metrics);
  // Drops batches that will not be trained on. Their tasks are scheduled again, first and with the same ids.
  void abandon(std::span<const PendingTasks> batches);

  const Task& task(const ScheduledTask& scheduled) const { return tasks_[static_cast<size_t>(scheduled.task)]; }
  const Task& task(const std::string& id) const;  // an Error if no task has this id
  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  TaskScheduleConfig config_;
  std::span<const Task> tasks_;
  Mixture order_;
  Curriculum curriculum_;
  std::deque<ScheduledTask> again_;
};

}  // namespace hone
