#include <algorithm>

#include "posttrain/losses/advantage.h"
#include "posttrain/losses/kl_penalty.h"

namespace hone {
namespace {

struct ReinforcePlusPlusSettings : KlInRewardSettings<ReinforcePlusPlusSettings> {
  bool baseline = false;
  double gamma = 1;
  ReinforcePlusPlusSettings() { kl.coef = 0; }

  void fields(Fields& f) override {
    f("baseline", baseline, "subtract the group's mean reward (REINFORCE++-baseline)");
    f("gamma", gamma, "discount of later rewards (without a baseline)");
    kl.fields(f, "kl_coef");
    policy.fields(f, {.beta = "kl_loss_coef"});
    f.require("gamma", gamma >= 0 && gamma <= 1, "gamma must be in [0, 1]");
  }
  bool compares_group() const override { return baseline; }
  std::unique_ptr<Objective> make(const RunFacts& facts) const override;
};

// REINFORCE++ (Hu et al. 2025): advantages have mean 0 and variance 1 over all tokens of a rollout batch, instead of
// within a group. The advantage of a token is its discounted return; with `baseline` it is the completion's reward
// minus the group's mean. KL is in the reward in both cases.
class ReinforcePlusPlus : public KlInRewardPolicyGradient {
 public:
  ReinforcePlusPlus(const ReinforcePlusPlusSettings& settings, const RunFacts& facts)
      : KlInRewardPolicyGradient(settings.policy, settings.kl, facts), settings_(settings) {}

 private:
  void fill_advantages(std::span<Group> groups, MetricSums& metrics) override {
    std::vector<double> advantages =
        settings_.baseline ? above_the_mean(groups, metrics) : discounted_returns(groups, metrics);
    whiten(advantages, true);
    set_column(scored(groups), columns::advantage, advantages);
  }
  // Advantages of each masked token of the scored samples, end to end.
  std::vector<double> above_the_mean(std::span<Group> groups, MetricSums& metrics) {
    const std::vector<double> rewards = penalty_.sequence_rewards(groups, metrics);
    std::vector<double> out;
    size_t next = 0;
    for (Group& group : groups) {
      const std::vector<Sample*> samples = scored(group).samples;
      const double mean = moments_of(std::span(rewards).subspan(next, samples.size())).mean;
      for (const Sample* sample : samples) {
        const auto tokens = std::ranges::count_if(sample->columns.find(columns::mask), [](float m) { return m != 0; });
        out.insert(out.end(), static_cast<size_t>(tokens), rewards[next++] - mean);
      }
    }
    return out;
  }
  std::vector<double> discounted_returns(std::span<Group> groups, MetricSums& metrics) {
    std::vector<double> out;
    for (std::vector<double>& rewards : penalty_.token_rewards(groups, metrics)) {
      for (size_t t = rewards.size(); t-- > 1;) rewards[t - 1] += settings_.gamma * rewards[t];
      out.insert(out.end(), rewards.begin(), rewards.end());
    }
    return out;
  }

  const ReinforcePlusPlusSettings settings_;
};

std::unique_ptr<Objective> ReinforcePlusPlusSettings::make(const RunFacts& facts) const {
  return std::make_unique<ReinforcePlusPlus>(*this, facts);
}

[[maybe_unused]] const bool added = add_objective<ReinforcePlusPlusSettings>("reinforce_plus_plus");

}  // namespace
}  // namespace hone
