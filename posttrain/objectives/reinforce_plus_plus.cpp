#include <algorithm>

#include "posttrain/losses/advantage.h"
#include "posttrain/losses/kl_penalty.h"

namespace hone {
namespace {

// REINFORCE++ (Hu et al. 2025): advantages brought to mean 0 and variance 1 over all tokens of a round, rather than
// within a group. A token's advantage is its discounted return; with `baseline` it is the reply's reward less its
// group's mean. KL is in the reward either way.
class ReinforcePlusPlus : public KlInRewardPolicyGradient {
 public:
  ReinforcePlusPlus() : KlInRewardPolicyGradient(0) {}

  void fields(Fields& f) override {
    f("baseline", baseline_, "subtract the group's mean reward (REINFORCE++-baseline)");
    f("gamma", gamma_, "discount of later rewards (without a baseline)");
    penalty_.fields(f, "kl_coef");
    policy_.fields(f, {.beta = "kl_loss_coef"});
    f.require("gamma", gamma_ >= 0 && gamma_ <= 1, "gamma must be in [0, 1]");
  }
  bool compares_group() const override { return baseline_; }

 private:
  void fill_advantages(std::span<Group> groups, MetricSums& metrics) override {
    std::vector<double> advantages = baseline_ ? above_the_mean(groups, metrics) : discounted_returns(groups, metrics);
    whiten(advantages, true);
    set_column(scored(groups), columns::advantage, advantages);
  }
  // Of each masked token of the judged samples, end to end.
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
      for (size_t t = rewards.size(); t-- > 1;) rewards[t - 1] += gamma_ * rewards[t];
      out.insert(out.end(), rewards.begin(), rewards.end());
    }
    return out;
  }

  bool baseline_ = false;
  double gamma_ = 1;
};

[[maybe_unused]] const bool added =
    objectives().add("reinforce_plus_plus", [] { return std::unique_ptr<Objective>(new ReinforcePlusPlus); });

}  // namespace
}  // namespace hone
