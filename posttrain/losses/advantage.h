#pragma once
// Computes advantages from rewards: the parts of objectives' compute_advantages().
#include <map>
#include <span>
#include <string>
#include <vector>

#include "train/objective.h"

namespace hone {

// The samples of a group that have a score, and their rewards.
struct ScoredSamples {
  std::vector<Sample*> samples;
  std::vector<double> rewards;
};
ScoredSamples scored(Group& group);
// The scored samples of several groups, end to end.
std::vector<Sample*> scored(std::span<Group> groups);

// Gives each token of the sample the same advantage.
void set_advantage(Sample& sample, double advantage);
// Writes a column of the samples. `values` are those of their masked tokens, end to end; other tokens get 0.
void set_column(std::span<Sample* const> samples, Column column, std::span<const double> values);

// The divisor of a reward's distance from its group's mean: the standard deviation (n - 1) of the group, of the batch,
// or none.
enum class RewardScale { group, batch, none };
const Registry<RewardScale>& reward_scales();  // by TRL's names

struct GroupBaseline {
  RewardScale scale = RewardScale::group;
  double eps = 1e-4;  // added to the deviation
};
// Gives every token of a scored sample the advantage (reward - mean of the group) / (deviation + eps). In a group of
// one it is 0.
void group_advantages(std::span<Group> groups, const GroupBaseline& baseline);

// Several rewards, each normalized by itself (GDPO, Liu et al. 2026; TRL's normalize_then_sum). In its group a reward
// becomes (reward - mean) / (deviation + eps). The weighted sum of a sample's rewards is its total. Every token of a
// scored sample gets the advantage (total - mean of the batch) / (deviation of the batch + eps). A sample without one
// of the rewards (the reward skipped it) does not count in its mean and deviation. `weights` is
// RunFacts::reward_weights; for a source without weights, the sample's reward is the only one.
void normalize_then_sum(std::span<Group> groups, const std::map<std::string, Metrics>& weights, double eps);

// Mean and standard deviation (n - 1; 0 for fewer than two values).
struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments_of(std::span<const double> values);

// For each reward of a group the mean of the others (Kool et al. 2019; Ahmadian et al. 2024, eq. 8). A single reward is
// its own mean, so its advantage is 0.
std::vector<double> leave_one_out(std::span<const double> rewards);

// Generalized advantage estimation (Schulman et al. 2016, eq. 16) over the steps of one complete
// episode. All spans are [n].
void estimate_advantages(std::span<const double> rewards, std::span<const double> values, double gamma, double lambda,
                         std::span<double> advantages);

// Scales values to variance 1 and, if `centered`, shifts them to mean 0, as masked_whiten of TRL and verl does.
void whiten(std::span<double> values, bool centered);

}  // namespace hone
