// The objective "grpo" (Shao et al. 2024): rewards normalized within a group. With several rewards, GDPO (Liu et al.
// 2026) normalizes each of them before the sum.
#include "posttrain/losses/advantage.h"
#include "posttrain/losses/policy_loss.h"

namespace hone {
namespace {

struct GrpoSettings : PolicyGradientSettings<GrpoSettings> {
  std::string scale_rewards = "group", multi_objective_aggregation = "sum_then_normalize";
  double advantage_eps = 1e-4;

  bool normalizes_first() const { return multi_objective_aggregation == "normalize_then_sum"; }

  void fields(Fields& f) override {
    f("scale_rewards", scale_rewards,
      "standard deviation that advantages are divided by: of the group, of the batch, or none");
    f("multi_objective_aggregation", multi_objective_aggregation,
      "sum_then_normalize: the advantage is that of the weighted sum of rewards; normalize_then_sum (GDPO): each "
      "reward "
      "is scaled within its group by its own mean and standard deviation, then they are added by their weights, and "
      "the "
      "sum is scaled over the batch; scale_rewards does not apply");
    f("advantage_eps", advantage_eps, "added to each of these deviations (1e-4 in TRL, 1e-6 in verl)");
    policy.fields(f);
    f.require("scale_rewards", reward_scales().contains(scale_rewards), reward_scales().unknown(scale_rewards));
    f.require("multi_objective_aggregation", normalizes_first() || multi_objective_aggregation == "sum_then_normalize",
              "multi_objective_aggregation must be sum_then_normalize or normalize_then_sum");
    f.require("scale_rewards", !normalizes_first() || scale_rewards == "group",
              "normalize_then_sum scales each reward by its group and the sum by the batch: remove scale_rewards");
    f.require("advantage_eps", advantage_eps > 0, "advantage_eps must be above 0");
  }
  bool compares_group() const override { return true; }
  void validate(const RunFacts& facts) const override {
    ObjectiveSettings::validate(facts);
    for (const auto& [source, weights] : facts.reward_weights)
      HONE_CHECK(!policy.length_penalty.on() || !weights.contains(ShapedRewards::part), "a reward is named ",
                 ShapedRewards::part, ", as the one that the key length_penalty adds: give it another name");
  }
  std::unique_ptr<Objective> make(const RunFacts& facts) const override;
};

// Group relative policy optimization (Shao et al. 2024, eq. 3), with the variants that TRL names.
class Grpo : public PolicyGradient {
 public:
  Grpo(const GrpoSettings& settings, const RunFacts& facts)
      : PolicyGradient(settings.policy, facts), settings_(settings), reward_weights_(facts.reward_weights) {
    if (policy_.length_penalty.on())
      for (auto& [source, weights] : reward_weights_) weights[ShapedRewards::part] = policy_.length_penalty.weight;
  }

 private:
  void fill_advantages(std::span<Group> groups, MetricSums&) override {
    if (settings_.normalizes_first()) return normalize_then_sum(groups, reward_weights_, settings_.advantage_eps);
    group_advantages(groups, {.scale = reward_scales().at(settings_.scale_rewards), .eps = settings_.advantage_eps});
  }

  const GrpoSettings settings_;
  std::map<std::string, Metrics> reward_weights_;  // with that of the length penalty
};

std::unique_ptr<Objective> GrpoSettings::make(const RunFacts& facts) const {
  return std::make_unique<Grpo>(*this, facts);
}

[[maybe_unused]] const bool added = add_objective<GrpoSettings>("grpo");

}  // namespace
}  // namespace hone
