#pragma once
// PolicyLoss: the loss of sampled tokens that have advantages, as its keys make it. PolicyGradient: an objective that
// is this loss and a way to give credit.
#include <string>

#include "posttrain/losses/importance.h"
#include "posttrain/losses/surrogate.h"

namespace hone {

// Each token's loss is w * surrogate(ratio, advantage) + beta * KL - entropy_coef * entropy, w the importance
// correction; `loss_type` says which surrogate, and what token losses are averaged over.
struct PolicyLoss {
  double epsilon = 0.2, epsilon_high = -1, delta = 0;
  std::string loss_type = "dapo", importance_sampling_level = "token";
  int64_t max_completion_length = 0;
  double beta = 0;
  std::string kl_loss_type = "k3";
  bool use_bias_correction_kl = false;
  double entropy_coef = 0;
  bool mask_truncated_completions = false;
  ImportanceCorrection correction = {};

  // Two keys have other names in some objectives: TRL's PPO has cliprange; where `beta` is KL in the reward, KL in the
  // loss has verl's name.
  struct Keys {
    const char *epsilon = "epsilon", *beta = "beta";
  };
  void fields(Fields& f, Keys keys);
  void fields(Fields& f) { fields(f, Keys()); }

  // behavior_logp, and old_logp with a correction; the reference with beta; the entropy, which is measured anyway.
  Needs needs() const;
  // No token of the sample that is trained on has an advantage, and the loss has no other part.
  bool has_no_gradient(const Sample& sample) const;
  // Settings that contradict each other.
  std::vector<std::string> warnings(const RunFacts& facts) const;
  // Takes completions that ran into the length limit out of the loss, if the keys say so.
  void mask_truncated(std::span<Group> groups) const;
  // What each masked token of sequence s weighs in the step's loss: scale and the loss type's average.
  double token_weight(const TokenBatch& batch, size_t s) const;
  // The loss; writes grad.logp and, with a bonus, grad.entropy. Adds TRL's clip_ratio/*, cispo_clip_ratio, kl, entropy
  // and sampling/*, and verl's actor/pg_clipfrac of cispo_relative.
  double evaluate(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const;
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
  void compute_advantages(std::span<Group> groups, MetricSums& metrics) final;
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    return policy_.evaluate(batch, grad, metrics);
  }

 protected:
  PolicyGradient(PolicyLoss policy, const RunFacts& facts) : policy_(std::move(policy)) {
    policy_.correction.resolve(facts.off_policy);
  }
  // Writes advantages (and returns) of samples that are judged; the others' are 0.
  virtual void fill_advantages(std::span<Group> groups, MetricSums& metrics) = 0;

  PolicyLoss policy_;
};

}  // namespace hone
