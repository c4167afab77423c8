#pragma once
// KL divergence from the reference in the reward: KlPenalty computes each token's charge and adapts its weight,
// KlInRewardPolicyGradient is a policy gradient with such rewards.
#include <string>
#include <vector>

#include "posttrain/losses/policy_loss.h"
#include "train/objective.h"

namespace hone {

// A token's reward is -coef * KL, estimated as k1, k2 or k3 from the log-probs before the epochs (Ziegler et al. 2019,
// eq. 2). An adaptive coef follows the KL divergence: after each round it is multiplied by
//   1 + clip(kl / target_kl - 1, -0.2, 0.2) * samples / horizon,
// kl being the mean over samples of a token's mean (verl's; Ziegler et al. take a sample's sum). Then coef is a state
// of the run.
class KlPenalty {
 public:
  explicit KlPenalty(double coef) : coef_(coef), now_(coef) {}
  // `coef_key` is what TRL calls the weight there: kl_coef (PPO), beta (RLOO).
  void fields(Fields& f, const char* coef_key);
  bool on() const { return coef_ > 0; }

  // For each judged sample of the groups, in order: its reward and the charges of its masked tokens, as one number; or
  // a number for each masked token, the reward on the last. Adds TRL's objective/kl, objective/non_score_reward,
  // objective/rlhf_reward and objective/scores; steers the weight.
  std::vector<double> sequence_rewards(std::span<Group> groups, MetricSums& metrics);
  std::vector<std::vector<double>> token_rewards(std::span<Group> groups, MetricSums& metrics);

  void save_state(StateSection& section) const;
  void load_state(const StateSection& section);

 private:
  // -coef * KL of each masked token.
  std::vector<std::vector<double>> charge(std::span<Group> groups, MetricSums& metrics);

  double coef_;
  std::string estimator_ = "k1", control_ = "fixed";
  double target_kl_ = 0.1;
  int64_t horizon_ = 10000;
  double now_;  // the weight that applies
};

// A policy gradient with KlPenalty in its rewards. The weight of the penalty is its state.
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
