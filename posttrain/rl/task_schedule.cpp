#include "posttrain/rl/task_schedule.h"

#include <algorithm>
#include <iterator>

#include "core/base/log.h"
#include "core/base/suggest.h"

namespace hone {

void TaskScheduleConfig::fields(Fields& f) {
  f("prompts_per_step", prompts_per_step, "prompts sampled for each rollout batch");
  f("filter_groups", filter_groups, "dynamic sampling");
  f("curriculum", curriculum, "sets prompts aside that are too easy or too hard");
  f.require("prompts_per_step", prompts_per_step > 0 && prompts_per_step <= max_step_samples,
            concat("prompts_per_step must be in [1, ", max_step_samples, "]"));
}

static std::vector<MixturePart> parts_or_all(std::vector<MixturePart> parts, size_t num_tasks) {
  if (parts.empty()) parts.push_back({.name = "", .count = static_cast<int64_t>(num_tasks)});
  return parts;
}

TaskSchedule::TaskSchedule(const TaskScheduleConfig& config, std::span<const Task> tasks, uint64_t seed,
                           std::vector<MixturePart> parts)
    : config_(config),
      tasks_(tasks),
      order_(parts_or_all(std::move(parts), tasks.size()), seed),
      curriculum_(config.curriculum, static_cast<int64_t>(tasks.size())) {
  HONE_CHECK(order_.count() == std::ssize(tasks), "task schedule: the sources have ", order_.count(), " tasks of ",
             tasks.size());
}

std::vector<ScheduledTask> TaskSchedule::next_tasks(PendingTasks& pending) {
  const FilterGroups& filter = config_.filter_groups;
  const auto wanted = static_cast<size_t>(config_.prompts_per_step);
  if (pending.batches > 0 && (!filter.enable || pending.batches >= filter.max_num_gen_batches)) return {};
  std::vector<ScheduledTask> out;
  for (auto id = static_cast<uint64_t>(order_.num_given()); pending.kept.size() + out.size() < wanted;) {
    if (!again_.empty()) {
      out.push_back(again_.front());
      again_.pop_front();
    } else {
      const int64_t task = curriculum_.next(order_);
      out.push_back({.task = task, .epoch = order_.epoch(), .id = id++});
    }
  }
  pending.tasks.insert(pending.tasks.end(), out.begin(), out.end());
  if (!out.empty()) ++pending.batches;
  return out;
}

void TaskSchedule::take(PendingTasks& pending, std::vector<Group> groups) {
  const FilterGroups& filter = config_.filter_groups;
  if (filter.enable) check_filter_metric(groups, filter.metric);
  for (Group& group : groups) {
    double passed = 0, num_scored = 0;
    for (const Sample& sample : group.samples) {
      if (!sample.scored) continue;
      passed += sample.reward >= curriculum_.threshold();
      ++num_scored;
      pending.reward += sample.reward;
    }
    pending.scored += num_scored;
    pending.passed.push_back(passed);
    pending.rated.push_back(num_scored);
    (!filter.enable || has_reward_spread(group, filter.metric) ? pending.kept : pending.dropped)
        .push_back(std::move(group));
  }
}

std::vector<Group> TaskSchedule::finish(PendingTasks pending, Metrics& metrics) {
  const FilterGroups& filter = config_.filter_groups;
  for (size_t i = 0; i < pending.tasks.size(); ++i)
    if (pending.rated[i] > 0)
      curriculum_.record(pending.tasks[i].task, pending.tasks[i].epoch, pending.passed[i] / pending.rated[i]);
  metrics.merge(curriculum_.metrics());
  metrics.merge(order_.metrics());
  std::vector<Group> kept = std::move(pending.kept), dropped = std::move(pending.dropped);
  if (!filter.enable) return kept;

  const auto wanted = static_cast<size_t>(config_.prompts_per_step);
  metrics["filter_groups/num_gen_batches"] = static_cast<double>(pending.batches);
  metrics["filter_groups/kept_ratio"] = static_cast<double>(kept.size()) / static_cast<double>(pending.tasks.size());
  if (pending.scored > 0) metrics["filter_groups/reward"] = pending.reward / pending.scored;
  const size_t fill = wanted - kept.size();
  if (fill > 0)
    log::warning("filter_groups: of ", pending.tasks.size(), " prompts in ", pending.batches, " batches ", kept.size(),
                 " had completions that differ in ", filter.metric.empty() ? "reward" : filter.metric, ", ", wanted,
                 " are needed; the step trains on fewer (are the tasks too easy or too hard? max_num_gen_batches is "
                 "the limit)");
  std::move(dropped.begin(), dropped.begin() + static_cast<std::ptrdiff_t>(fill), std::back_inserter(kept));
  for (auto group = dropped.begin() + static_cast<std::ptrdiff_t>(fill); group != dropped.end(); ++group)
    for (const Sample& sample : group->samples)
      for (const auto& [name, count] : sample.counts) metrics[name] += count;
  return kept;
}

void TaskSchedule::abandon(std::span<const PendingTasks> batches) {
  for (auto pending = batches.rbegin(); pending != batches.rend(); ++pending)
    again_.insert(again_.begin(), pending->tasks.begin(), pending->tasks.end());
}

const Task& TaskSchedule::task(const std::string& id) const {
  const auto found = std::ranges::find_if(tasks_, [&](const Task& task) { return task.id == id; });
  HONE_CHECK(found != tasks_.end(), "task schedule: task ", id, " is not among the ", tasks_.size(), " loaded tasks");
  return *found;
}

void TaskSchedule::save_state(StateSection& section) const {
  order_.save_state(section);
  curriculum_.save_state(section);
  JsonArray again;
  for (const ScheduledTask& scheduled : again_)
    again.push_back(JsonArray{scheduled.task, scheduled.epoch, static_cast<int64_t>(scheduled.id)});
  section.values.set("asked_again", std::move(again));
}

void TaskSchedule::load_state(const StateSection& section) {
  order_.load_state(section);
  curriculum_.load_state(section);
  again_.clear();
  for (const Json& row : section.values.at("asked_again", "rounds").as_array("asked_again")) {
    const JsonArray& scheduled = row.as_array("asked_again");
    HONE_CHECK(scheduled.size() == 3, "saved task schedule: asked_again has an entry of ", scheduled.size(),
               " numbers, not 3");
    again_.push_back({scheduled[0].as_int(), scheduled[1].as_int(), static_cast<uint64_t>(scheduled[2].as_int())});
    const int64_t task = again_.back().task;
    HONE_CHECK(task >= 0 && task < std::ssize(tasks_), "saved task schedule: task ", task, " is scheduled, there are ",
               tasks_.size());
  }
}

}  // namespace hone
