#pragma once
// Rounds: which tasks each round of experience asks, and which of the groups are learned from.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/sample.h"
#include "posttrain/curriculum.h"

namespace hone {

// Dynamic sampling (DAPO: Yu et al. 2025, section 3.2), by verl's names: groups whose replies all earn the same are dropped, and other tasks asked.
struct FilterGroups {
  bool enable = false;
  std::string metric;  // what must differ: the reward, or the part of it by this name
  int64_t max_num_gen_batches = 10;
  void fields(Fields& f);
};

struct RoundConfig {
  int64_t prompts_per_step = 16;
  FilterGroups filter_groups;
  CurriculumConfig curriculum;
  void fields(Fields& f);
};

// Two judged replies of the group differ in the metric.
bool differs(const Group& group, const std::string& metric);

// State: the order's position and the curriculum.
class Rounds : public Stateful {
 public:
  // The tasks are the caller's and must outlive it.
  Rounds(const RoundConfig& config, std::span<const Task> tasks, uint64_t seed);

  // Judged groups of the tasks, in order; first_id numbers the requests, as Actor::gather takes it.
  using Gather = std::function<std::vector<Group>(std::span<const Task* const> tasks, uint64_t first_id)>;
  // prompts_per_step groups. With filter_groups, batches of as many tasks as groups are missing are gathered until all differ; where
  // max_num_gen_batches do not do, the first that were dropped fill the round up, with a warning. Adds filter_groups/{num_gen_batches, kept_ratio,
  // reward: of all that was sampled}, the counts of samples that were dropped, and the curriculum's metrics. What `gather` throws leaves the
  // state as it was.
  std::vector<Group> next(const Gather& gather, Metrics& metrics);

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  RoundConfig config_;
  std::span<const Task> tasks_;
  IndexLoader order_;
  Curriculum curriculum_;
};

}  // namespace hone
