#pragma once
// From rewards to advantages: the parts that objectives' credit() is made of.
#include <span>
#include <string>
#include <vector>

#include "train/objective.h"

namespace hone {

// The samples of a group that are judged, and their rewards.
struct ScoredSamples {
  std::vector<Sample*> samples;
  std::vector<double> rewards;
};
ScoredSamples scored(Group& group);
// Those of several groups, end to end.
std::vector<Sample*> scored(std::span<Group> groups);

// The same advantage for each of a sample's tokens.
void set_advantage(Sample& sample, double advantage);
// Writes a column of the samples. `values` are those of their masked tokens, end to end; other tokens get 0.
void set_column(std::span<Sample* const> samples, Column column, std::span<const double> values);

// What a reward's distance from its group's mean is divided by: the standard deviation (n - 1) of the group, of the
// whole batch, or nothing.
enum class RewardScale { group, batch, none };
const Registry<RewardScale>& reward_scales();  // by TRL's names

struct GroupBaseline {
  RewardScale scale = RewardScale::group;
  double eps = 1e-4;  // added to the deviation
};
// Writes one advantage for every token of a judged sample: (reward - mean of the group) / (deviation + eps). A group of
// one has advantage 0.
void group_advantages(std::span<Group> groups, const GroupBaseline& baseline);

// Mean and standard deviation (n - 1; 0 for fewer than two).
struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments_of(std::span<const double> values);

// The mean of a group's other rewards, for each of them (Kool et al. 2019; Ahmadian et al. 2024, eq. 8); of one alone
// itself, so that it learns nothing.
std::vector<double> leave_one_out(std::span<const double> rewards);

// Generalised advantage estimation (Schulman et al. 2016, eq. 16) over the steps of one episode whose last step ends
// it. All [n].
void estimate_advantages(std::span<const double> rewards, std::span<const double> values, double gamma, double lambda,
                         std::span<double> advantages);

// To variance 1 and, if centred, mean 0, as TRL's and verl's masked_whiten do.
void whiten(std::span<double> values, bool centred);

}  // namespace hone
