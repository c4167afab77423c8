#include "posttrain/rounds.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "core/log.h"
#include "posttrain/stage.h"

namespace hone {

void FilterGroups::fields(Fields& f) {
  f("enable", enable, "dynamic sampling: a step learns from groups alone whose replies do not all earn the same; other prompts replace the others");
  f("metric", metric, "what must differ: a part of the reward by its name; empty = the reward");
  f("max_num_gen_batches", max_num_gen_batches, "batches of prompts sampled for one step, at most");
  f.require("max_num_gen_batches", max_num_gen_batches > 0 && max_num_gen_batches <= 10000, "max_num_gen_batches must be in [1, 10000]");
}

void RoundConfig::fields(Fields& f) {
  f("prompts_per_step", prompts_per_step, "prompts sampled for each round of experience");
  f("filter_groups", filter_groups, "dynamic sampling");
  f("curriculum", curriculum, "which prompts are asked");
  f.require("prompts_per_step", prompts_per_step > 0 && prompts_per_step <= max_batch, concat("prompts_per_step must be in [1, ", max_batch, "]"));
}

bool differs(const Group& group, const std::string& metric) {
  std::optional<double> first;
  for (const Sample& sample : group.samples) {
    if (!sample.judged) continue;
    const auto part = sample.reward_parts.find(metric);
    if (!metric.empty() && part == sample.reward_parts.end()) continue;
    const double value = metric.empty() ? sample.reward : part->second;
    if (first && *first != value) return true;
    first = value;
  }
  return false;
}

// A metric that no judged reply has is misspelt.
static void check_metric(std::span<const Group> groups, const std::string& metric) {
  std::set<std::string> known;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples)
      for (const auto& [name, score] : sample.reward_parts) known.insert(name);
  HONE_CHECK(metric.empty() || known.empty() || known.contains(metric), "filter_groups: the reward has no part '", metric, "'; it has ",
             join(std::vector(known.begin(), known.end())));
}

Rounds::Rounds(const RoundConfig& config, std::span<const Task> tasks, uint64_t seed)
    : config_(config),
      tasks_(tasks),
      order_(static_cast<int64_t>(tasks.size()), seed),
      curriculum_(config.curriculum, static_cast<int64_t>(tasks.size())) {}

std::vector<Group> Rounds::next(const Gather& gather, Metrics& metrics) {
  const FilterGroups& filter = config_.filter_groups;
  const auto wanted = static_cast<size_t>(config_.prompts_per_step);
  struct Asked {
    int64_t task, epoch;
    double passed, judged;
  };
  std::vector<Asked> asked;
  std::vector<Group> kept, dropped;
  IndexLoader order = order_;
  int64_t batches = 0;
  double reward = 0, judged = 0;
  do {
    const auto first_id = static_cast<uint64_t>(order.drawn());
    std::vector<const Task*> prompts;
    for (size_t missing = wanted - kept.size(); missing > 0; --missing) {
      const int64_t task = curriculum_.next(order);
      asked.push_back({task, order.epoch(), 0, 0});
      prompts.push_back(&tasks_[static_cast<size_t>(task)]);
    }
    std::vector<Group> groups = gather(prompts, first_id);
    if (filter.enable) check_metric(groups, filter.metric);
    for (size_t i = 0; i < groups.size(); ++i) {
      Asked& of = asked[asked.size() - groups.size() + i];
      for (const Sample& sample : groups[i].samples) {
        if (!sample.judged) continue;
        of.passed += sample.reward >= curriculum_.threshold();
        ++of.judged;
        reward += sample.reward;
      }
      judged += of.judged;
      (!filter.enable || differs(groups[i], filter.metric) ? kept : dropped).push_back(std::move(groups[i]));
    }
  } while (++batches < filter.max_num_gen_batches && kept.size() < wanted);

  order_ = order;
  for (const Asked& of : asked)
    if (of.judged > 0) curriculum_.record(of.task, of.epoch, of.passed / of.judged);
  metrics.merge(curriculum_.metrics());
  if (!filter.enable) return kept;

  metrics["filter_groups/num_gen_batches"] = static_cast<double>(batches);
  metrics["filter_groups/kept_ratio"] = static_cast<double>(kept.size()) / static_cast<double>(asked.size());
  if (judged > 0) metrics["filter_groups/reward"] = reward / judged;
  const size_t fill = wanted - kept.size();
  if (fill > 0)
    log::warning("filter_groups: of ", asked.size(), " prompts in ", batches, " batches ", kept.size(), " had replies that differ in ",
                 filter.metric.empty() ? "reward" : filter.metric, ", ", wanted,
                 " are wanted; the step learns from fewer (are the tasks too easy or too hard? max_num_gen_batches is the bound)");
  std::move(dropped.begin(), dropped.begin() + static_cast<std::ptrdiff_t>(fill), std::back_inserter(kept));
  for (auto group = dropped.begin() + static_cast<std::ptrdiff_t>(fill); group != dropped.end(); ++group)
    for (const Sample& sample : group->samples)
      for (const auto& [name, count] : sample.counts) metrics[name] += count;
  return kept;
}

void Rounds::save_state(StateSection& section) const {
  order_.save_state(section);
  curriculum_.save_state(section);
}

void Rounds::load_state(const StateSection& section) {
  order_.load_state(section);
  curriculum_.load_state(section);
}

}  // namespace hone
