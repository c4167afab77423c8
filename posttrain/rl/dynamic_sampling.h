#pragma once
// Dynamic sampling: its settings, and which groups it drops. TaskSchedule (task_schedule.h) drops them and takes
// other tasks.
#include <span>
#include <string>

#include "core/config/fields.h"
#include "data/sample.h"

namespace hone {

// Dynamic sampling (DAPO: Yu et al. 2025, section 3.2), by verl's names: groups whose completions all have the
// same reward are dropped, and other tasks are sampled.
struct FilterGroups {
  bool enable = false;
  std::string metric;  // part of the reward that must differ, by name; empty: the complete reward
  int64_t max_num_gen_batches = 10;
  void fields(Fields& f);
};

// True if two scored completions of the group differ in the metric.
bool has_reward_spread(const Group& group, const std::string& metric);

// Throws Error if no scored completion has the metric: its name is misspelled.
void check_filter_metric(std::span<const Group> groups, const std::string& metric);

}  // namespace hone
