#include "posttrain/losses/advantage.h"
#include "posttrain/losses/policy_loss.h"

namespace hone {
namespace {

struct GrpoSettings : PolicyGradientSettings<GrpoSettings> {
  std::string scale_rewards = "group";
  double advantage_eps = 1e-4;

  void fields(Fields& f) override {
    f("scale_rewards", scale_rewards,
      "standard deviation that advantages are divided by: of the group, of the batch, or none");
    f("advantage_eps", advantage_eps, "added to that deviation (1e-4 in TRL, 1e-6 in verl)");
    policy.fields(f);
    f.require("scale_rewards", reward_scales().contains(scale_rewards), reward_scales().unknown(scale_rewards));
    f.require("advantage_eps", advantage_eps > 0, "advantage_eps must be above 0");
  }
  bool compares_group() const override { return true; }
  std::unique_ptr<Objective> make(const RunFacts& facts) const override;
};

// Group relative policy optimization (Shao et al. 2024, eq. 3), with the variants that TRL names.
class Grpo : public PolicyGradient {
 public:
  Grpo(const GrpoSettings& settings, const RunFacts& facts)
      : PolicyGradient(settings.policy, facts), settings_(settings) {}

 private:
  void fill_advantages(std::span<Group> groups, MetricSums&) override {
    group_advantages(groups, {.scale = reward_scales().at(settings_.scale_rewards), .eps = settings_.advantage_eps});
  }

  const GrpoSettings settings_;
};

std::unique_ptr<Objective> GrpoSettings::make(const RunFacts& facts) const {
  return std::make_unique<Grpo>(*this, facts);
}

[[maybe_unused]] const bool added = add_objective<GrpoSettings>("grpo");

}  // namespace
}  // namespace hone
