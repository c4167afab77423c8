#pragma once
#include "posttrain/losses/kl_penalty.h"
#include "posttrain/losses/policy_loss.h"

namespace hone {

// A policy gradient whose rewards are charged for KL. The penalty's weight is its state.
class KlInRewardPolicyGradient : public PolicyGradient {
 public:
  Needs needs() const override {
    Needs out = PolicyGradient::needs();
    if (penalty_.on() && !out.has(columns::reference_logp)) out.columns.push_back(columns::reference_logp);
    return out;
  }
  void save_state(StateSection& section) const override { penalty_.save_state(section); }
  void load_state(const StateSection& section) override { penalty_.load_state(section); }

 protected:
  explicit KlInRewardPolicyGradient(double coef, PolicyLoss policy = {})
      : PolicyGradient(std::move(policy)), penalty_(coef) {}

  KlPenalty penalty_;
};

}  // namespace hone
