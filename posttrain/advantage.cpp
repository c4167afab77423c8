#include "posttrain/advantage.h"

#include <cmath>

namespace hone {

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
  for (const double v : values) out.mean += v;
  out.mean /= static_cast<double>(values.size());
  if (values.size() < 2) return out;
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  out.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return out;
}

void credit_groups(std::span<Group> groups, const GroupBaseline& baseline, MetricSums& metrics) {
  std::vector<double> all, rewards;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples)
      if (sample.judged) all.push_back(sample.reward);
  const double batch_deviation = moments_of(all).deviation;
  for (Group& group : groups) {
    rewards.clear();
    for (const Sample& sample : group.samples)
      if (sample.judged) rewards.push_back(sample.reward);
    const Moments moments = moments_of(rewards);
    const double deviation = baseline.scale == RewardScale::batch ? batch_deviation : moments.deviation;
    const double factor = baseline.scale == RewardScale::none ? 1 : 1 / (deviation + baseline.eps);
    for (Sample& sample : group.samples) {
      sample.advantage.assign(sample.tokens.size(), sample.judged ? static_cast<float>((sample.reward - moments.mean) * factor) : 0.0f);
      if (!sample.judged) continue;
      metrics.add("reward", sample.reward, 1);
      metrics.add("reward_std", deviation, 1);
      metrics.add("frac_reward_zero_std", deviation <= 1e-8, 1);
    }
  }
}

void estimate_advantages(std::span<const double> rewards, std::span<const double> values, double gamma, double lambda, std::span<double> advantages) {
  double next_value = 0, carried = 0;
  for (size_t i = rewards.size(); i-- > 0;) {
    carried = rewards[i] + gamma * next_value - values[i] + gamma * lambda * carried;
    advantages[i] = carried;
    next_value = values[i];
  }
}

void whiten(std::span<double> values, bool centred) {
  const Moments moments = moments_of(values);
  const double factor = 1 / std::sqrt(moments.deviation * moments.deviation + 1e-8);
  for (double& v : values) v = (v - moments.mean) * factor + (centred ? 0 : moments.mean);
}

}  // namespace hone
