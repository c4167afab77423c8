#include "posttrain/losses/advantage.h"
#include "posttrain/losses/policy_loss.h"

namespace hone {
namespace {

// Group relative policy optimisation (Shao et al. 2024, eq. 3), with the variants that TRL names.
class Grpo : public PolicyGradient {
 public:
  void fields(Fields& f) override {
    f("scale_rewards", scale_rewards_, "group | batch | none: whose standard deviation advantages are divided by");
    f("advantage_eps", advantage_eps_, "added to that deviation (1e-4 in TRL, 1e-6 in verl)");
    policy_.fields(f);
    f.require("scale_rewards", reward_scales().contains(scale_rewards_), reward_scales().unknown(scale_rewards_));
    f.require("advantage_eps", advantage_eps_ > 0, "advantage_eps must be above 0");
  }
  bool compares_group() const override { return true; }

 private:
  void fill_advantages(std::span<Group> groups, MetricSums&) override {
    group_advantages(groups, {.scale = reward_scales().at(scale_rewards_), .eps = advantage_eps_});
  }

  std::string scale_rewards_ = "group";
  double advantage_eps_ = 1e-4;
};

[[maybe_unused]] const bool added = objectives().add("grpo", [] { return std::unique_ptr<Objective>(new Grpo); });

}  // namespace
}  // namespace hone
