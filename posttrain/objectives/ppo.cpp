#include <algorithm>
#include <cmath>

#include "posttrain/advantage.h"
#include "posttrain/surrogate.h"

namespace hone {
namespace {

// Half the squared error of a value, or of its clipped self where that is larger (TRL's value loss).
struct ValueTerm : Term {
  bool clipped = false;
};

ValueTerm value_loss(double value, double old_value, double target, double cliprange) {
  const double kept = std::clamp(value, old_value - cliprange, old_value + cliprange);
  const double error = value - target, kept_error = kept - target;
  ValueTerm out;
  out.clipped = kept_error * kept_error > error * error;
  out.loss = 0.5 * (out.clipped ? kept_error * kept_error : error * error);
  out.slope = out.clipped ? 0 : error;  // where the clipped error is the larger, it is a constant
  return out;
}

// Proximal policy optimisation (Schulman et al. 2017) with a critic, and the KL divergence from the reference in the reward (Ziegler et al. 2019).
class Ppo : public Objective {
 public:
  void fields(Fields& f) override {
    f("kl_coef", kl_coef_, "weight of the KL divergence from the reference in each token's reward (0: no reference model)");
    f("gamma", gamma_, "discount of later rewards");
    f("lam", lam_, "GAE's lambda");
    f("cliprange", cliprange_, "the ratio is clipped to 1 +- cliprange");
    f("cliprange_value", cliprange_value_, "a value is clipped to its old one +- cliprange_value");
    f("vf_coef", vf_coef_, "weight of the value loss");
    f("entropy_coeff", entropy_coeff_, "weight of the entropy bonus");
    f("whiten_rewards", whiten_rewards_, "bring the token rewards of a step to variance 1");
    f("whiten_advantages", whiten_advantages_, "bring the advantages of a step to mean 0 and variance 1");
    f.require("kl_coef", kl_coef_ >= 0, "kl_coef must not be negative");
    f.require("gamma", gamma_ >= 0 && gamma_ <= 1, "gamma must be in [0, 1]");
    f.require("lam", lam_ >= 0 && lam_ <= 1, "lam must be in [0, 1]");
    f.require("cliprange", cliprange_ >= 0 && cliprange_ <= 1, "cliprange must be in [0, 1]");
    f.require("cliprange_value", cliprange_value_ > 0, "cliprange_value must be above 0");
    f.require("vf_coef", vf_coef_ >= 0, "vf_coef must not be negative");
  }

  Needs needs() const override { return {.behavior = true, .reference = kl_coef_ > 0, .entropy = true, .critic = true, .per = Per::token}; }

  void credit(std::span<Group> groups, MetricSums& metrics) override {
    std::vector<double> rewards = token_rewards(groups, metrics), values, advantages(rewards.size());
    if (whiten_rewards_) whiten(rewards, false);
    for_samples(groups, [&](Sample& sample) { for_masked(sample, [&](size_t t) { values.push_back(sample.value[t]); }); });
    size_t begin = 0;
    for_samples(groups, [&](Sample& sample) {
      size_t steps = 0;
      for_masked(sample, [&](size_t) { ++steps; });
      estimate_advantages(std::span(rewards).subspan(begin, steps), std::span(values).subspan(begin, steps), gamma_, lam_,
                          std::span(advantages).subspan(begin, steps));
      begin += steps;
    });
    std::vector<double> returns(advantages.size());
    for (size_t i = 0; i < returns.size(); ++i) returns[i] = advantages[i] + values[i];
    if (whiten_advantages_) whiten(advantages, true);
    size_t i = 0;
    for_samples(groups, [&](Sample& sample) {
      sample.advantage.assign(sample.tokens.size(), 0), sample.returns.assign(sample.tokens.size(), 0);
      for_masked(sample, [&](size_t t) {
        sample.advantage[t] = static_cast<float>(advantages[i]), sample.returns[t] = static_cast<float>(returns[i]);
        ++i;
      });
      metrics.add("reward", sample.reward, 1);
    });
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    HONE_CHECK(!batch.advantage.empty() || batch.num_tokens() == 0, "ppo: needs advantages; they come from rewards and values");
    const std::span<const float> old_logp = denominator_logp(batch), old_value = batch.old_value.empty() ? batch.value : batch.old_value;
    HONE_CHECK(entropy_coeff_ == 0 || !batch.entropy.empty(), "ppo: entropy_coeff needs the policy's entropy");
    double sum = 0, tokens = 0, policy_sum = 0, value_sum = 0, clipped = 0, value_clipped = 0, approx_kl = 0, entropy_sum = 0, ratio_sum = 0;
    for (size_t t = 0; t < batch.mask.size(); ++t) {
      const double mask = batch.mask[t];
      if (mask == 0) continue;
      const LogRatio ratio = log_ratio(batch.logp[t], old_logp[t]);
      const ClippedTerm policy = clipped_surrogate(ratio, batch.advantage[t], cliprange_, cliprange_);
      const ValueTerm value = value_loss(batch.value[t], old_value[t], batch.returns[t], cliprange_value_);
      const double weight = mask * batch.scale;
      const double entropy = batch.entropy.empty() ? 0 : batch.entropy[t];
      sum += weight * (policy.loss + vf_coef_ * value.loss - entropy_coeff_ * entropy);
      grad.logp[t] = static_cast<float>(weight * policy.slope);
      grad.value[t] = static_cast<float>(weight * vf_coef_ * value.slope);
      if (entropy_coeff_ != 0) grad.entropy[t] = static_cast<float>(-weight * entropy_coeff_);
      tokens += mask;
      policy_sum += mask * policy.loss, value_sum += mask * value.loss;
      clipped += mask * (policy.cut_low || policy.cut_high), value_clipped += mask * value.clipped;
      approx_kl += mask * 0.5 * ratio.value * ratio.value, ratio_sum += mask * std::exp(ratio.value);
      entropy_sum += mask * entropy;
    }
    metrics.add("loss/policy_avg", policy_sum, tokens);
    metrics.add("loss/value_avg", value_sum, tokens);
    metrics.add("policy/clipfrac_avg", clipped, tokens);
    metrics.add("policy/approxkl_avg", approx_kl, tokens);
    metrics.add("val/clipfrac_avg", value_clipped, tokens);
    metrics.add("val/ratio", ratio_sum, tokens);
    if (!batch.entropy.empty()) metrics.add("policy/entropy_avg", entropy_sum, tokens);
    add_sampling_difference(batch, metrics);
    return sum;
  }

 private:
  template <class F>
  static void for_samples(std::span<Group> groups, F visit) {
    for (Group& group : groups)
      for (Sample& sample : group.samples) visit(sample);
  }
  template <class F>
  static void for_masked(const Sample& sample, F visit) {
    for (size_t t = 0; t < sample.mask.size(); ++t)
      if (sample.mask[t] != 0) visit(t);
  }

  // Of every masked token of the groups, end to end: the KL penalty (k1), and on a sample's last token its reward.
  std::vector<double> token_rewards(std::span<Group> groups, MetricSums& metrics) const {
    std::vector<double> out;
    for_samples(groups, [&](Sample& sample) {
      const std::vector<float>& logp = sample.old_logp.empty() ? sample.behavior_logp : sample.old_logp;
      HONE_CHECK(sample.value.size() == sample.tokens.size(), "ppo: a sample of ", sample.tokens.size(), " tokens has ", sample.value.size(),
                 " values");
      HONE_CHECK(kl_coef_ == 0 || (logp.size() == sample.tokens.size() && sample.reference_logp.size() == sample.tokens.size()),
                 "ppo: kl_coef needs the log-probs of the sampler and of the reference");
      const size_t begin = out.size();
      double kl = 0;
      for_masked(sample, [&](size_t t) {
        const double difference = kl_coef_ > 0 ? static_cast<double>(logp[t]) - sample.reference_logp[t] : 0;
        kl += difference;
        out.push_back(-kl_coef_ * difference);
      });
      if (out.size() > begin) out.back() += sample.reward;
      metrics.add("objective/kl", kl, 1);
      metrics.add("objective/non_score_reward", -kl_coef_ * kl, 1);
      metrics.add("objective/rlhf_reward", sample.reward - kl_coef_ * kl, 1);
      metrics.add("objective/scores", sample.reward, 1);
    });
    return out;
  }

  double kl_coef_ = 0.05, gamma_ = 1, lam_ = 0.95, cliprange_ = 0.2, cliprange_value_ = 0.2, vf_coef_ = 0.1, entropy_coeff_ = 0;
  bool whiten_rewards_ = false, whiten_advantages_ = true;
};

[[maybe_unused]] const bool added = objectives().add("ppo", [] { return std::unique_ptr<Objective>(new Ppo); });

}  // namespace
}  // namespace hone
