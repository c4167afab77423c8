#include "posttrain/losses/length_penalty.h"

#include <algorithm>

#include "posttrain/losses/advantage.h"

namespace hone {

void LengthPenalty::fields(Fields& f) {
  f("length_penalty", weight,
    "weight of a length reward (Kimi k1.5): from +0.5 for the group's shortest completion to -0.5 for its longest one, "
    "and never above 0 for a wrong completion; 0 = none");
  f("length_penalty_threshold", threshold, "length_penalty: lowest reward of a correct completion");
  f.require("length_penalty", weight >= 0, "length_penalty must not be negative");
}

std::vector<double> LengthPenalty::rewards(std::span<const Sample* const> samples) const {
  std::vector<double> lengths, out;
  for (const Sample* sample : samples) lengths.push_back(static_cast<double>(sample->completion.ids.size()));
  if (lengths.empty()) return out;
  const auto [shortest, longest] = std::ranges::minmax(lengths);
  for (size_t i = 0; i < samples.size(); ++i) {
    const double lambda = longest > shortest ? 0.5 - (lengths[i] - shortest) / (longest - shortest) : 0;
    out.push_back(samples[i]->reward >= threshold ? lambda : std::min(0.0, lambda));
  }
  return out;
}

ShapedRewards::ShapedRewards(const LengthPenalty& penalty, std::span<Group> groups, MetricSums& metrics) {
  if (!penalty.on()) return;
  for (Group& group : groups) {
    const std::vector<Sample*> samples = scored(group).samples;
    const std::vector<double> added = penalty.rewards({samples.begin(), samples.end()});
    for (size_t i = 0; i < samples.size(); ++i) {
      Sample& sample = *samples[i];
      originals_.push_back({&sample, sample.reward, sample.reward_parts});
      sample.reward += penalty.weight * added[i];
      sample.reward_parts[part] = added[i];
      metrics.add("rewards/length_penalty/mean", added[i], 1);
    }
  }
}

ShapedRewards::~ShapedRewards() {
  for (Original& original : originals_) {
    original.sample->reward = original.reward;
    original.sample->reward_parts = std::move(original.parts);
  }
}

}  // namespace hone
