#pragma once
// From rewards to advantages: the parts that objectives' credit() is made of.
#include <span>
#include <string>
#include <vector>

#include "core/model/objective.h"

namespace hone {

// What a reward's distance from its group's mean is divided by: the standard deviation (n - 1) of the group, of the whole batch, or nothing.
enum class RewardScale { group, batch, none };
const Registry<RewardScale>& reward_scales();  // by TRL's names

struct GroupBaseline {
  RewardScale scale = RewardScale::group;
  double eps = 1e-4;  // added to the deviation
};
// Writes one advantage for every token of a sample: (reward - mean of the group) / (deviation + eps). Adds TRL's reward, reward_std and
// frac_reward_zero_std. A group of one has advantage 0.
void credit_groups(std::span<Group> groups, const GroupBaseline& baseline, MetricSums& metrics);

// Mean and standard deviation (n - 1; 0 for fewer than two).
struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments_of(std::span<const double> values);

// Generalised advantage estimation (Schulman et al. 2016, eq. 16) over the steps of one episode whose last step ends it. All [n].
void estimate_advantages(std::span<const double> rewards, std::span<const double> values, double gamma, double lambda, std::span<double> advantages);

// To variance 1 and, if centred, mean 0, as TRL's masked_whiten does.
void whiten(std::span<double> values, bool centred);

}  // namespace hone
