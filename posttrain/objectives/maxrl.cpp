// The objective "maxrl" (Tajwar et al. 2026): rewards divided by the mean reward of the group.
#include "posttrain/losses/advantage.h"
#include "posttrain/losses/policy_loss.h"

namespace hone {
namespace {

struct MaxRlSettings : PolicyGradientSettings<MaxRlSettings> {
  double advantage_eps = 1e-6;

  void fields(Fields& f) override {
    f("advantage_eps", advantage_eps, "added to the group's mean reward");
    policy.fields(f);
    f.require("length_penalty", !policy.length_penalty.on(),
              "maxrl needs rewards of 0 or more, and a length penalty makes some negative: no length_penalty");
    f.require("advantage_eps", advantage_eps > 0, "advantage_eps must be above 0");
  }
  bool compares_group() const override { return true; }
  std::unique_ptr<Objective> make(const RunFacts& facts) const override;
};

// Maximum likelihood reinforcement learning (Tajwar et al. 2026): (reward - mean of the group) / (mean + eps). With
// rewards of 0 and 1 a rare success has the weight that it has in the gradient of log(pass rate).
class MaxRl : public PolicyGradient {
 public:
  MaxRl(const MaxRlSettings& settings, const RunFacts& facts)
      : PolicyGradient(settings.policy, facts), settings_(settings) {}

 private:
  void fill_advantages(std::span<Group> groups, MetricSums&) override {
    for (Group& group : groups) {
      const ScoredSamples known = scored(group);
      const double mean = moments_of(known.rewards).mean;
      HONE_CHECK(mean >= 0, "maxrl: the mean reward of ", group.task.id, " is ", mean,
                 "; maxrl needs rewards of 0 or more");
      for (size_t i = 0; i < known.samples.size(); ++i)
        set_advantage(*known.samples[i], (known.rewards[i] - mean) / (mean + settings_.advantage_eps));
    }
  }

  const MaxRlSettings settings_;
};

std::unique_ptr<Objective> MaxRlSettings::make(const RunFacts& facts) const {
  return std::make_unique<MaxRl>(*this, facts);
}

[[maybe_unused]] const bool added = add_objective<MaxRlSettings>("maxrl");

}  // namespace
}  // namespace hone
