#pragma once
// PolicyLoss: the loss of sampled tokens with advantages. PolicyGradient: an objective with this loss; a derived class
// computes the advantages.
#include <string>

#include "posttrain/losses/importance.h"
#include "posttrain/losses/length_penalty.h"
#include "posttrain/losses/rejection.h"
#include "posttrain/losses/surrogate.h"
#include "posttrain/losses/top_entropy.h"

namespace hone {

// The loss of a token is w * surrogate(ratio, advantage) + beta * KL - entropy_coef * entropy. w is the importance
// correction, and 0 for tokens that the off-policy sequence mask or top_entropy leaves out; these still count in the
// average. `loss_type` selects the surrogate. It also selects what token losses are averaged over, unless
// `loss_agg_mode` does.
struct PolicyLoss {
  double epsilon = 0.2, epsilon_high = -1, delta = 0;
  std::string loss_type = "dapo", loss_agg_mode = "auto", importance_sampling_level = "token";
  double sapo_temperature_pos = 1, sapo_temperature_neg = 1.05;
  int64_t max_completion_length = 0;
  double beta = 0;
  std::string kl_loss_type = "k3";
  bool use_bias_correction_kl = false;
  double entropy_coef = 0;
  bool mask_truncated_completions = false;
  ImportanceCorrection correction = {};
  // Off-policy sequence mask (DeepSeek-V3.2 2025, eq. 9): the policy terms with a negative advantage of a sequence with
  // a greater mean of behavior_logp - logp are 0. 0: no mask.
  double off_policy_mask_threshold = 0;
  RejectionSampling rejection = {};
  TopEntropy top_entropy = {};
  LengthPenalty length_penalty = {};

  // Two keys have other names in some objectives: cliprange in TRL's PPO; verl's kl_loss_coef in objectives whose
  // `beta` is KL in the reward.
  struct Keys {
    const char *epsilon = "epsilon", *beta = "beta";
  };
  void fields(Fields& f, Keys keys);
  void fields(Fields& f) { fields(f, Keys()); }

  // behavior_logp and advantage; old_logp with a correction or rejection; reference_logp with beta; columns of
  // top_entropy; the entropy, for its metric.
  Needs needs() const;
  // True if all trained tokens of the sample have advantage 0 or are not selected, and the loss has no other term.
  bool has_no_gradient(const Sample& sample) const;
  // Sentences about settings that contradict each other or the run.
  std::vector<std::string> warnings(const RunFacts& facts) const;
  // With mask_truncated_completions: takes completions that were cut off at the length limit out of the loss.
  void mask_truncated(std::span<Group> groups) const;
  // Objective::select_tokens() of objectives with this loss.
  void select_tokens(std::span<Group> groups, MetricSums& metrics) const;
  // The weight of a masked token of sequence s in the step's loss: scale times the average of the loss type.
  double token_weight(const TokenBatch& batch, size_t s) const;
  // The loss. Writes grad.logp and, with an entropy bonus, grad.entropy. Adds TRL's clip_ratio/*, cispo_clip_ratio, kl,
  // entropy and sampling/*, verl's actor/pg_clipfrac for cispo_relative and dppo_*, verl's actor/ppo_kl for sapo and
  // dppo_*, and opsm_clipfrac with an off-policy sequence mask.
  double evaluate(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const;

 private:
  void require_sense(Fields& f, Keys keys) const;
  // The factor of each token's policy term in sequence s.
  std::vector<double> policy_weights(const TokenBatch& batch, size_t s, MetricSums& metrics) const;
};

// Settings of an objective with a PolicyLoss; Derived is the settings' own type.
template <class Derived>
struct PolicyGradientSettings : ObjectiveSettings {
  PolicyLoss policy;

  std::vector<std::string> warnings(const RunFacts& facts) const override { return policy.warnings(facts); }
  std::shared_ptr<const ObjectiveSettings> resolved(const RunFacts& facts) const override {
    auto out = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    out->policy.correction.resolve(facts.off_policy);
    return out;
  }
};

class PolicyGradient : public Objective {
 public:
  Needs needs() const override { return policy_.needs(); }
  bool has_no_gradient(const Sample& sample) const override { return policy_.has_no_gradient(sample); }
  void select_tokens(std::span<Group> groups, MetricSums& metrics) override { policy_.select_tokens(groups, metrics); }
  void compute_advantages(std::span<Group> groups, MetricSums& metrics) final;
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    return policy_.evaluate(batch, grad, metrics);
  }

 protected:
  PolicyGradient(PolicyLoss policy, const RunFacts& facts) : policy_(std::move(policy)) {
    policy_.correction.resolve(facts.off_policy);
  }
  // Writes the advantages (and returns) of scored samples. Those of other samples stay 0. Rewards include the length
  // penalty.
  virtual void fill_advantages(std::span<Group> groups, MetricSums& metrics) = 0;

  PolicyLoss policy_;
};

}  // namespace hone
