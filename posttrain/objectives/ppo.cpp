#include <algorithm>
#include <cmath>

#include "posttrain/losses/advantage.h"
#include "posttrain/losses/penalised_policy.h"

namespace hone {
namespace {

// Half the squared error of a value, or of its clipped self where that is larger (TRL's and verl's value loss).
struct ValueTerm {
  double loss = 0, slope = 0;
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

// Proximal policy optimisation (Schulman et al. 2017) with a critic, and the KL divergence from the reference in the
// reward (Ziegler et al. 2019).
class Ppo : public KlInRewardPolicyGradient {
 public:
  Ppo() : KlInRewardPolicyGradient(0.05) {}

  void fields(Fields& f) override {
    penalty_.fields(f, "kl_coef");
    f("gamma", gamma_, "discount of later rewards");
    f("lam", lam_, "GAE's lambda");
    f("cliprange_value", cliprange_value_, "a value is clipped to its old one +- cliprange_value");
    f("vf_coef", vf_coef_, "weight of the value loss");
    f("whiten_rewards", whiten_rewards_, "bring the token rewards of a round to variance 1");
    f("whiten_advantages", whiten_advantages_, "bring the advantages of a round to mean 0 and variance 1");
    policy_.fields(f, {.epsilon = "cliprange", .beta = "kl_loss_coef"});
    f.require("gamma", gamma_ >= 0 && gamma_ <= 1, "gamma must be in [0, 1]");
    f.require("lam", lam_ >= 0 && lam_ <= 1, "lam must be in [0, 1]");
    f.require("cliprange_value", cliprange_value_ > 0, "cliprange_value must be above 0");
    f.require("vf_coef", vf_coef_ >= 0, "vf_coef must not be negative");
  }
  Needs needs() const override {
    Needs out = KlInRewardPolicyGradient::needs();
    out.critic = true;
    return out;
  }
  bool has_no_gradient(const Sample& sample) const override {
    return std::ranges::all_of(sample.mask, [](float m) { return m == 0; });
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    HONE_CHECK(!batch.returns.empty() || batch.num_tokens() == 0,
               "ppo: needs returns; they come from rewards and values");
    const double policy = policy_.evaluate(batch, grad, metrics);
    double count = 0;
    for (size_t s = 0; s < batch.num_sequences(); ++s) {
      const auto begin = static_cast<size_t>(batch.offsets[s]), end = static_cast<size_t>(batch.offsets[s + 1]);
      count += count_of(policy_.needs().per, batch.mask.subspan(begin, end - begin));
    }
    metrics.add("loss/policy_avg", policy / batch.scale, count);
    return policy + value_part(batch, grad, metrics);
  }

 private:
  void fill_advantages(std::span<Group> groups, MetricSums& metrics) override {
    const std::vector<Sample*> samples = scored(groups);
    std::vector<double> rewards, values, advantages, returns;
    std::vector<size_t> steps;
    for (const std::vector<double>& own : penalty_.token_rewards(groups, metrics)) {
      rewards.insert(rewards.end(), own.begin(), own.end());
      steps.push_back(own.size());
    }
    if (whiten_rewards_) whiten(rewards, false);
    for (const Sample* sample : samples) {
      HONE_CHECK(sample->value.size() == sample->tokens.size(), "ppo: a sample of ", sample->tokens.size(),
                 " tokens has ", sample->value.size(), " values");
      for (size_t t = 0; t < sample->mask.size(); ++t)
        if (sample->mask[t] != 0) values.push_back(sample->value[t]);
    }
    advantages.resize(rewards.size());
    size_t begin = 0;
    for (const size_t count : steps) {
      estimate_advantages(std::span(rewards).subspan(begin, count), std::span(values).subspan(begin, count), gamma_,
                          lam_, std::span(advantages).subspan(begin, count));
      begin += count;
    }
    for (size_t i = 0; i < values.size(); ++i) returns.push_back(advantages[i] + values[i]);
    if (whiten_advantages_) whiten(advantages, true);
    for (Group& group : groups)
      for (Sample& sample : group.samples) sample.returns.assign(sample.tokens.size(), 0);
    set_column(samples, &Sample::advantage, advantages);
    set_column(samples, &Sample::returns, returns);
  }

  double value_part(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const {
    const std::span<const float> old_value = batch.old_value.empty() ? batch.value : batch.old_value,
                                 old_logp = denominator_logp(batch);
    double loss = 0, tokens = 0, errors = 0, clipped = 0, ratios = 0, approx_kl = 0;
    for (size_t s = 0; s < batch.num_sequences(); ++s) {
      const double weight = policy_.token_weight(batch, s) * vf_coef_;
      for (auto t = static_cast<size_t>(batch.offsets[s]); t < static_cast<size_t>(batch.offsets[s + 1]); ++t) {
        const double mask = batch.mask[t];
        if (mask == 0) continue;
        const ValueTerm value = value_loss(batch.value[t], old_value[t], batch.returns[t], cliprange_value_);
        loss += weight * mask * value.loss;
        grad.value[t] = static_cast<float>(weight * mask * value.slope);
        const double difference = log_ratio(batch.logp[t], old_logp[t]).value;
        tokens += mask, errors += mask * value.loss, clipped += mask * value.clipped;
        ratios += mask * std::exp(difference), approx_kl += mask * 0.5 * difference * difference;
      }
    }
    metrics.add("loss/value_avg", errors, tokens);
    metrics.add("val/clipfrac_avg", clipped, tokens);
    metrics.add("val/ratio", ratios, tokens);
    metrics.add("policy/approxkl_avg", approx_kl, tokens);
    return loss;
  }

  double gamma_ = 1, lam_ = 0.95, cliprange_value_ = 0.2, vf_coef_ = 0.1;
  bool whiten_rewards_ = false, whiten_advantages_ = true;
};

[[maybe_unused]] const bool added = objectives().add("ppo", [] { return std::unique_ptr<Objective>(new Ppo); });

}  // namespace
}  // namespace hone
