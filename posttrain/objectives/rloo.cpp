#include "posttrain/losses/advantage.h"
#include "posttrain/losses/kl_penalty.h"

namespace hone {
namespace {

struct RlooSettings : KlInRewardSettings<RlooSettings> {
  bool normalize_advantages = false;
  RlooSettings() {
    kl.coef = 0.05;
    policy.loss_type = "grpo";
    policy.importance_sampling_level = "trajectory";
  }

  void fields(Fields& f) override {
    kl.fields(f, "beta");
    f("normalize_advantages", normalize_advantages,
      "shift and scale the advantages of a rollout batch to mean 0 and variance 1");
    policy.fields(f, {.beta = "kl_loss_coef"});
  }
  bool compares_group() const override { return true; }
  std::unique_ptr<Objective> make(const RunFacts& facts) const override;
};

// REINFORCE leave-one-out (Ahmadian et al. 2024): the advantage is the completion's reward, with its KL divergence in
// it, minus the mean reward of the group's others. As in TRL a completion is one action: its ratio is the product of
// its tokens' ratios, and clipped. verl's is importance_sampling_level = "token" with loss_type = "dapo".
class Rloo : public KlInRewardPolicyGradient {
 public:
  Rloo(const RlooSettings& settings, const RunFacts& facts)
      : KlInRewardPolicyGradient(settings.policy, settings.kl, facts), settings_(settings) {}

 private:
  void fill_advantages(std::span<Group> groups, MetricSums& metrics) override {
    const std::vector<double> rewards = penalty_.sequence_rewards(groups, metrics);
    std::vector<double> advantages;
    for (Group& group : groups) {
      const auto own = std::span(rewards).subspan(advantages.size(), scored(group).samples.size());
      const std::vector<double> baselines = leave_one_out(own);
      for (size_t i = 0; i < own.size(); ++i) advantages.push_back(own[i] - baselines[i]);
    }
    if (settings_.normalize_advantages) {
      const Moments moments = moments_of(advantages);
      for (double& advantage : advantages) advantage = (advantage - moments.mean) / (moments.deviation + 1e-4);
    }
    const std::vector<Sample*> samples = scored(groups);
    for (size_t i = 0; i < samples.size(); ++i) set_advantage(*samples[i], advantages[i]);
  }

  const RlooSettings settings_;
};

std::unique_ptr<Objective> RlooSettings::make(const RunFacts& facts) const {
  return std::make_unique<Rloo>(*this, facts);
}

[[maybe_unused]] const bool added = add_objective<RlooSettings>("rloo");

}  // namespace
}  // namespace hone
