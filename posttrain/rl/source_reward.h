#pragma once
// The reward of a stage whose sources have different ones: scores each task with the reward of its source.
#include <map>
#include <memory>
#include <string>

#include "posttrain/rl/environments/environment.h"
#include "rewards/reward.h"

namespace hone {

// by_source: the reward of each Task::source. If all are the same object, returns that one. Otherwise returns a reward
// that chooses by the task; a score without parts gets one, named like the source's reward.
RewardSpec reward_of_sources(const std::map<std::string, RewardSpec>& by_source);

// RunFacts::reward_weights: the parts of each source's reward, or the reward itself if it has no parts, and the
// environment's rewards.
std::map<std::string, Metrics> weights_by_source(const std::map<std::string, RewardSpec>& by_source,
                                                 const EnvironmentConfig& environment);

}  // namespace hone
