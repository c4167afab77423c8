#include "posttrain/losses/advantage.h"
#include "posttrain/losses/policy_loss.h"

namespace hone {
namespace {

// Maximum likelihood reinforcement learning (Tajwar et al. 2026): (reward - mean of the group) / (mean + eps), so that
// with rewards of 0 and 1 a success that is rare weighs as it does in the gradient of log(pass rate).
class MaxRl : public PolicyGradient {
 public:
  void fields(Fields& f) override {
    f("advantage_eps", advantage_eps_, "added to the group's mean reward");
    policy_.fields(f);
    f.require("advantage_eps", advantage_eps_ > 0, "advantage_eps must be above 0");
  }
  bool compares_group() const override { return true; }

 private:
  void fill_advantages(std::span<Group> groups, MetricSums&) override {
    for (Group& group : groups) {
      const ScoredSamples known = scored(group);
      const double mean = moments_of(known.rewards).mean;
      HONE_CHECK(mean >= 0, "maxrl: the mean reward of ", group.task.id, " is ", mean, "; a pass rate is not negative");
      for (size_t i = 0; i < known.samples.size(); ++i)
        set_advantage(*known.samples[i], (known.rewards[i] - mean) / (mean + advantage_eps_));
    }
  }

  double advantage_eps_ = 1e-6;
};

[[maybe_unused]] const bool added = objectives().add("maxrl", [] { return std::unique_ptr<Objective>(new MaxRl); });

}  // namespace
}  // namespace hone
