#include "posttrain/rl/reward_watch.h"

#include <algorithm>
#include <vector>

#include "core/base/log.h"
#include "posttrain/rl/task_schedule.h"

namespace hone {

void RewardWatch::warn_once(const std::string& subject, const std::string& message) {
  if (warned_.insert(subject).second) log::warning("rl: ", message);
}

void RewardWatch::observe_reward(const std::string& name, std::span<const double> rewards) {
  const auto [least, most] = std::ranges::minmax(rewards);
  Constant& constant = constants_[name];
  if (least != most || (constant.steps > 0 && constant.value != least)) constant.steps = 0;
  if (least != most) return;
  constant.value = least;
  if (++constant.steps < patience) return;
  warn_once("reward " + name, concat(name.empty() ? std::string("the reward") : "the reward's part '" + name + "'",
                                     " was ", least, " for every completion of ", patience,
                                     " steps in a row: it never varies. Do the completions end, and does "
                                     "the reward read the right column? (samples.jsonl has some)"));
}

void RewardWatch::observe(std::span<const Group> groups) {
  std::map<std::string, std::vector<double>> rewards;
  bool comparable = false, any_differs = false;
  for (const Group& group : groups) {
    int64_t num_scored = 0;
    for (const Sample& sample : group.samples) {
      if (!sample.scored) continue;
      ++num_scored;
      rewards[""].push_back(sample.reward);
      for (const auto& [name, value] : sample.reward_parts) rewards[name].push_back(value);
    }
    comparable = comparable || num_scored > 1;
    any_differs = any_differs || has_reward_spread(group, "");
  }
  for (const auto& [name, values] : rewards) observe_reward(name, values);
  if (!comparable) return;
  flat_steps_ = any_differs ? 0 : flat_steps_ + 1;
  if (flat_steps_ >= patience)
    warn_once("groups",
              concat("in ", patience,
                     " steps in a row every group had zero variance: the completions of each prompt earned the same. "
                     "Objectives that compare them have no gradient (are the tasks too easy or too hard? "
                     "filter_groups, curriculum)"));
}

}  // namespace hone
