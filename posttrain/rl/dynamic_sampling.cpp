#include "posttrain/rl/dynamic_sampling.h"

#include <optional>
#include <set>
#include <vector>

#include "core/base/suggest.h"

namespace hone {

void FilterGroups::fields(Fields& f) {
  f("enable", enable,
    "dynamic sampling: a step trains only on groups whose rewards differ; other prompts replace the other groups");
  f("metric", metric, "part of the reward that must differ within a group, by name; empty = the complete reward");
  f("max_num_gen_batches", max_num_gen_batches,
    "maximum batches of prompts sampled for one step; then dropped groups fill the step, with a warning");
  f.require("max_num_gen_batches", max_num_gen_batches > 0 && max_num_gen_batches <= 10000,
            "max_num_gen_batches must be in [1, 10000]");
}

bool has_reward_spread(const Group& group, const std::string& metric) {
  std::optional<double> first;
  for (const Sample& sample : group.samples) {
    if (!sample.scored) continue;
    const auto part = sample.reward_parts.find(metric);
    if (!metric.empty() && part == sample.reward_parts.end()) continue;
    const double value = metric.empty() ? sample.reward : part->second;
    if (first && *first != value) return true;
    first = value;
  }
  return false;
}

void check_filter_metric(std::span<const Group> groups, const std::string& metric) {
  std::set<std::string> known;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples)
      for (const auto& [name, score] : sample.reward_parts) known.insert(name);
  HONE_CHECK(metric.empty() || known.empty() || known.contains(metric), "filter_groups: the reward has no part '",
             metric, "'; it has ", join(std::vector(known.begin(), known.end())));
}

}  // namespace hone
