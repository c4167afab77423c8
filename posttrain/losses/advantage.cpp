#include "posttrain/losses/advantage.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace hone {

ScoredSamples scored(Group& group) {
  ScoredSamples out;
  for (Sample& sample : group.samples)
    if (sample.scored) {
      out.samples.push_back(&sample);
      out.rewards.push_back(sample.reward);
    }
  return out;
}

std::vector<Sample*> scored(std::span<Group> groups) {
  std::vector<Sample*> out;
  for (Group& group : groups)
    for (Sample* sample : scored(group).samples) out.push_back(sample);
  return out;
}

void set_advantage(Sample& sample, double advantage) {
  sample.columns.assign(columns::advantage, sample.tokens.size(), static_cast<float>(advantage));
}

void set_column(std::span<Sample* const> samples, Column column, std::span<const double> values) {
  size_t next = 0;
  for (Sample* sample : samples) {
    const std::span<const float> mask = sample->columns.find(columns::mask);
    std::vector<float> entries(sample->tokens.size(), 0);
    for (size_t t = 0; t < mask.size(); ++t)
      if (mask[t] != 0) entries[t] = static_cast<float>(values[next++]);
    sample->columns.set(column, std::move(entries));
  }
}

const Registry<RewardScale>& reward_scales() {
  static const Registry<RewardScale> registry = [] {
    Registry<RewardScale> r("scale_rewards");
    r.add("group", RewardScale::group);
    r.add("batch", RewardScale::batch);
    r.add("none", RewardScale::none);
    return r;
  }();
  return registry;
}

Moments moments_of(std::span<const double> values) {
  Moments out;
  if (values.empty()) return out;
  for (const double v : values) out.mean += v - values[0];  // exact if all values are equal
  out.mean = values[0] + out.mean / static_cast<double>(values.size());
  if (values.size() < 2) return out;
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  out.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return out;
}

void group_advantages(std::span<Group> groups, const GroupBaseline& baseline) {
  std::vector<double> all;
  for (const Sample* sample : scored(groups)) all.push_back(sample->reward);
  const double batch_deviation = moments_of(all).deviation;
  for (Group& group : groups) {
    const ScoredSamples known = scored(group);
    const Moments moments = moments_of(known.rewards);
    const double deviation = baseline.scale == RewardScale::batch ? batch_deviation : moments.deviation;
    const double factor = baseline.scale == RewardScale::none ? 1 : 1 / (deviation + baseline.eps);
    for (size_t i = 0; i < known.samples.size(); ++i)
      set_advantage(*known.samples[i], (known.rewards[i] - moments.mean) * factor);
  }
}

// The rewards of one name; NaN where a sample does not have it.
static std::vector<double> rewards_named(const std::string& name, const Metrics& weights,
                                         std::span<Sample* const> samples) {
  std::vector<double> out;
  for (const Sample* sample : samples) {
    const Metrics& parts = sample->reward_parts;
    if (!name.empty()) {
      const auto score = parts.find(name);
      out.push_back(score == parts.end() ? std::numeric_limits<double>::quiet_NaN() : score->second);
      continue;
    }
    out.push_back(sample->reward);
    for (const auto& [part, score] : parts)
      if (const auto weight = weights.find(part); weight != weights.end()) out.back() -= weight->second * score;
  }
  return out;
}

void normalize_then_sum(std::span<Group> groups, const std::map<std::string, Metrics>& weights, double eps) {
  static const Metrics one_reward = {{"", 1}};
  std::vector<Sample*> all;
  std::vector<double> totals;
  for (Group& group : groups) {
    const std::vector<Sample*> samples = scored(group).samples;
    const size_t first = all.size();
    all.insert(all.end(), samples.begin(), samples.end());
    totals.resize(all.size());
    const auto found = weights.find(group.task.source);
    const Metrics& own = found == weights.end() ? one_reward : found->second;
    for (const auto& [name, weight] : own) {
      const std::vector<double> rewards = rewards_named(name, own, samples);
      std::vector<double> known;
      std::ranges::copy_if(rewards, std::back_inserter(known), [](double r) { return !std::isnan(r); });
      const Moments moments = moments_of(known);
      for (size_t i = 0; i < rewards.size(); ++i)
        if (!std::isnan(rewards[i]))
          totals[first + i] += weight * (rewards[i] - moments.mean) / (moments.deviation + eps);
    }
  }
  const Moments moments = moments_of(totals);
  for (size_t i = 0; i < all.size(); ++i)
    set_advantage(*all[i], (totals[i] - moments.mean) / (moments.deviation + eps));
}

std::vector<double> leave_one_out(std::span<const double> rewards) {
  if (rewards.size() < 2) return {rewards.begin(), rewards.end()};
  const double first = rewards[0];
  double sum = 0;
  for (const double reward : rewards) sum += reward - first;  // exactly 0 if all rewards are equal
  std::vector<double> out;
  for (const double reward : rewards)
    out.push_back(first + (sum - (reward - first)) / static_cast<double>(rewards.size() - 1));
  return out;
}

void estimate_advantages(std::span<const double> rewards, std::span<const double> values, double gamma, double lambda,
                         std::span<double> advantages) {
  double next_value = 0, carried = 0;
  for (size_t i = rewards.size(); i-- > 0;) {
    carried = rewards[i] + gamma * next_value - values[i] + gamma * lambda * carried;
    advantages[i] = carried;
    next_value = values[i];
  }
}

void whiten(std::span<double> values, bool centered) {
  const Moments moments = moments_of(values);
  const double factor = 1 / std::sqrt(moments.deviation * moments.deviation + 1e-8);
  for (double& v : values) v = (v - moments.mean) * factor + (centered ? 0 : moments.mean);
}

}  // namespace hone
