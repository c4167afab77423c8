#include <algorithm>
#include <cmath>

#include "posttrain/losses/advantage.h"
#include "posttrain/losses/kl_penalty.h"

namespace hone {
namespace {

// Half the squared error of a value or of the clipped value, whichever is larger (value loss of TRL and verl).
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
  out.slope = out.clipped ? 0 : error;  // the clipped error is constant
  return out;
}

struct PpoSettings : KlInRewardSettings<PpoSettings> {
  double gamma = 1, lam = 0.95, cliprange_value = 0.2, vf_coef = 0.1;
  bool whiten_rewards = false, whiten_advantages = true;
  PpoSettings() { kl.coef = 0.05; }

  void fields(Fields& f) override {
    kl.fields(f, "kl_coef");
    f("gamma", gamma, "discount of later rewards");
    f("lam", lam, "GAE's lambda");
    f("cliprange_value", cliprange_value, "values are clipped to the old value +- cliprange_value");
    f("vf_coef", vf_coef, "weight of the value loss");
    f("whiten_rewards", whiten_rewards, "scale the token rewards of a rollout batch to variance 1");
    f("whiten_advantages", whiten_advantages,
      "shift and scale the advantages of a rollout batch to mean 0 and variance 1");
    policy.fields(f, {.epsilon = "cliprange", .beta = "kl_loss_coef"});
    f.require("gamma", gamma >= 0 && gamma <= 1, "gamma must be in [0, 1]");
    f.require("lam", lam >= 0 && lam <= 1, "lam must be in [0, 1]");
    f.require("cliprange_value", cliprange_value > 0, "cliprange_value must be above 0");
    f.require("vf_coef", vf_coef >= 0, "vf_coef must not be negative");
  }
  std::unique_ptr<Objective> make(const RunFacts& facts) const override;
};

// Proximal policy optimization (Schulman et al. 2017) with a critic, and the KL divergence from the reference in the
// reward (Ziegler et al. 2019).
class Ppo : public KlInRewardPolicyGradient {
 public:
  Ppo(const PpoSettings& settings, const RunFacts& facts)
      : KlInRewardPolicyGradient(settings.policy, settings.kl, facts), settings_(settings) {}

  Needs needs() const override {
    Needs out = KlInRewardPolicyGradient::needs();
    out.columns.push_back(columns::returns);
    out.optional.push_back(columns::old_value);
    out.critic = true;
    return out;
  }
  bool has_no_gradient(const Sample& sample) const override {
    return std::ranges::all_of(sample.columns.find(columns::mask), [](float m) { return m == 0; });
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const double policy = policy_.evaluate(batch, grad, metrics);
    const std::span<const float> mask = batch[columns::mask];
    double count = 0;
    for (size_t s = 0; s < batch.num_sequences(); ++s) {
      const auto begin = static_cast<size_t>(batch.offsets[s]), end = static_cast<size_t>(batch.offsets[s + 1]);
      count += count_of(policy_.needs().unit, mask.subspan(begin, end - begin));
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
    if (settings_.whiten_rewards) whiten(rewards, false);
    for (const Sample* sample : samples) {
      const std::span<const float> mask = sample->columns.find(columns::mask),
                                   old_values = sample->columns.find(columns::old_value);
      HONE_CHECK(old_values.size() == sample->tokens.size(), "ppo: a sample of ", sample->tokens.size(), " tokens has ",
                 old_values.size(), " values");
      for (size_t t = 0; t < mask.size(); ++t)
        if (mask[t] != 0) values.push_back(old_values[t]);
    }
    advantages.resize(rewards.size());
    size_t begin = 0;
    for (const size_t count : steps) {
      estimate_advantages(std::span(rewards).subspan(begin, count), std::span(values).subspan(begin, count),
                          settings_.gamma, settings_.lam, std::span(advantages).subspan(begin, count));
      begin += count;
    }
    for (size_t i = 0; i < values.size(); ++i) returns.push_back(advantages[i] + values[i]);
    if (settings_.whiten_advantages) whiten(advantages, true);
    for (Group& group : groups)
      for (Sample& sample : group.samples) sample.columns.assign(columns::returns, sample.tokens.size(), 0);
    set_column(samples, columns::advantage, advantages);
    set_column(samples, columns::returns, returns);
  }

  double value_part(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const {
    const std::span<const float> masks = batch[columns::mask], logp = batch[columns::logp],
                                 values = batch[columns::value], returns = batch[columns::returns],
                                 old_values = batch.has(columns::old_value) ? batch[columns::old_value] : values,
                                 old_logp = denominator_logp(batch);
    double loss = 0, tokens = 0, errors = 0, clipped = 0, ratios = 0, approx_kl = 0;
    for (size_t s = 0; s < batch.num_sequences(); ++s) {
      const double weight = policy_.token_weight(batch, s) * settings_.vf_coef;
      for (auto t = static_cast<size_t>(batch.offsets[s]); t < static_cast<size_t>(batch.offsets[s + 1]); ++t) {
        const double mask = masks[t];
        if (mask == 0) continue;
        const ValueTerm value = value_loss(values[t], old_values[t], returns[t], settings_.cliprange_value);
        loss += weight * mask * value.loss;
        grad.value[t] = static_cast<float>(weight * mask * value.slope);
        const double difference = log_ratio(logp[t], old_logp[t]).value;
        tokens += mask;
        errors += mask * value.loss;
        clipped += mask * value.clipped;
        ratios += mask * std::exp(difference);
        approx_kl += mask * 0.5 * difference * difference;
      }
    }
    metrics.add("loss/value_avg", errors, tokens);
    metrics.add("val/clipfrac_avg", clipped, tokens);
    metrics.add("val/ratio", ratios, tokens);
    metrics.add("policy/approxkl_avg", approx_kl, tokens);
    return loss;
  }

  const PpoSettings settings_;
};

std::unique_ptr<Objective> PpoSettings::make(const RunFacts& facts) const {
  return std::make_unique<Ppo>(*this, facts);
}

[[maybe_unused]] const bool added = add_objective<PpoSettings>("ppo");

}  // namespace
}  // namespace hone
