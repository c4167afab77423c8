#include "posttrain/losses/top_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hone {

void TopEntropy::fields(Fields& f) {
  f("top_entropy_quantile", quantile,
    "share of the rollout batch's tokens that the policy term is for: those with the highest entropy (0.2 in the "
    "paper); 1 = all, 0 = those of the highest entropy only; below 1 costs a forward pass");
  f.require("top_entropy_quantile", quantile >= 0 && quantile <= 1, "top_entropy_quantile must be in [0, 1]");
}

void TopEntropy::add_needs(Needs& needs) const {
  if (!on()) return;
  needs.columns.push_back(columns::old_entropy);
  needs.columns.push_back(columns::top_entropy);
}

float quantile_of(std::span<float> values, double q) {
  HONE_CHECK(!values.empty(), "quantile: there are no values");
  // As torch.quantile: q is rounded to f32, its product with the last index is not.
  const double rank = double{static_cast<float>(q)} * static_cast<double>(values.size() - 1);
  const auto weight = static_cast<float>(rank - std::floor(rank));
  const size_t below = std::min(static_cast<size_t>(rank), values.size() - 1);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::ranges::nth_element(values, middle);
  const float low = *middle;
  if (weight == 0 || below + 1 == values.size()) return low;
  const float high = *std::min_element(middle + 1, values.end());
  return weight < 0.5f ? low + weight * (high - low) : high - (high - low) * (1 - weight);
}

void TopEntropy::select(std::span<Group> groups, MetricSums& metrics) const {
  if (!on()) return;
  std::vector<float> all;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) {
      const std::span<const float> mask = sample.columns.find(columns::mask);
      for (size_t t = 0; t < mask.size(); ++t)
        if (mask[t] != 0) all.push_back(sample.columns[columns::old_entropy][t]);
    }
  const float threshold = all.empty() ? std::numeric_limits<float>::infinity() : quantile_of(all, 1 - quantile);
  if (!all.empty()) metrics.add("top_entropy/threshold", threshold, 1);
  for (Group& group : groups)
    for (Sample& sample : group.samples) {
      const std::span<const float> mask = sample.columns.find(columns::mask),
                                   entropy = sample.columns.find(columns::old_entropy);
      std::vector<float> selected(sample.tokens.size(), 0);
      for (size_t t = 0; t < mask.size(); ++t) {
        if (mask[t] == 0) continue;
        selected[t] = entropy[t] >= threshold ? 1.0f : 0.0f;
        metrics.add("top_entropy/selected", selected[t], 1);
      }
      sample.columns.set(columns::top_entropy, std::move(selected));
    }
}

}  // namespace hone
