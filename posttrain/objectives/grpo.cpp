#include <algorithm>

#include "posttrain/advantage.h"
#include "posttrain/surrogate.h"

namespace hone {
namespace {

// How token losses become one number. dapo and bnpo: the mean over the optimizer step's tokens (there is no smaller batch here whose split could
// matter, so they agree). grpo: the mean over sequences of each one's token mean. dr_grpo: over sequences, each one's sum / max_completion_length.
struct LossType {
  Per per;
  double (*sequence_weight)(double tokens, int64_t max_completion_length);
};

const Registry<LossType>& loss_types() {
  static const Registry<LossType> registry = [] {
    Registry<LossType> r("loss_type");
    const LossType token_mean{Per::token, [](double, int64_t) { return 1.0; }};
    r.add("dapo", token_mean);
    r.add("bnpo", token_mean);
    r.add("grpo", {Per::sequence, [](double tokens, int64_t) { return 1 / std::max(tokens, 1.0); }});
    r.add("dr_grpo", {Per::sequence, [](double, int64_t max_completion_length) { return 1 / static_cast<double>(max_completion_length); }});
    return r;
  }();
  return registry;
}

// Group relative policy optimisation (Shao et al. 2024, eq. 3), with the variants that TRL names.
class Grpo : public Objective {
 public:
  void fields(Fields& f) override {
    f("epsilon", epsilon_, "the ratio is clipped below at 1 - epsilon, and above at 1 + epsilon unless epsilon_high is set");
    f("epsilon_high", epsilon_high_, "upper clip; below 0: epsilon");
    f("beta", beta_, "weight of the KL divergence from the reference (0: no reference model)");
    f("loss_type", loss_type_, "dapo | bnpo | grpo | dr_grpo: what token losses are averaged over");
    f("scale_rewards", scale_rewards_, "group | batch | none: whose standard deviation advantages are divided by");
    f("max_completion_length", max_completion_length_, "dr_grpo: the constant that a sequence's sum is divided by");
    f.require("epsilon", epsilon_ >= 0 && epsilon_ <= 1, "epsilon must be in [0, 1]");
    f.require("beta", beta_ >= 0, "beta must not be negative");
    f.require("loss_type", loss_types().contains(loss_type_), loss_types().unknown(loss_type_));
    f.require("scale_rewards", reward_scales().contains(scale_rewards_), reward_scales().unknown(scale_rewards_));
    f.require("max_completion_length", loss_type_ != "dr_grpo" || max_completion_length_ > 0, "dr_grpo needs a length above 0");
  }

  Needs needs() const override { return {.behavior = true, .reference = beta_ > 0, .entropy = true, .per = loss_types().at(loss_type_).per}; }

  void credit(std::span<Group> groups, MetricSums& metrics) override {
    credit_groups(groups, {.scale = reward_scales().at(scale_rewards_)}, metrics);
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    HONE_CHECK(!batch.advantage.empty() || batch.num_tokens() == 0, "grpo: needs advantages; they come from rewards");
    const LossType& type = loss_types().at(loss_type_);
    const double high = epsilon_high_ < 0 ? epsilon_ : epsilon_high_;
    const std::span<const float> old_logp = denominator_logp(batch);
    double sum = 0, tokens = 0, cut_low = 0, cut_high = 0, divergence = 0, entropy = 0;
    for (size_t s = 0; s < batch.num_sequences(); ++s) {
      const auto begin = static_cast<size_t>(batch.offsets[s]), end = static_cast<size_t>(batch.offsets[s + 1]);
      const double weight = batch.scale * type.sequence_weight(count_of(Per::token, batch.mask.subspan(begin, end - begin)), max_completion_length_);
      for (size_t t = begin; t < end; ++t) {
        const double mask = batch.mask[t];
        if (mask == 0) continue;
        const ClippedTerm policy = clipped_surrogate(log_ratio(batch.logp[t], old_logp[t]), batch.advantage[t], epsilon_, high);
        Term term = policy;
        if (beta_ > 0) {
          const Term kl = kl_k3(batch.logp[t], batch.reference_logp[t]);
          term.loss += beta_ * kl.loss, term.slope += beta_ * kl.slope;
          divergence += mask * kl.loss;
        }
        sum += weight * mask * term.loss;
        grad.logp[t] = static_cast<float>(weight * mask * term.slope);
        tokens += mask;
        cut_low += mask * policy.cut_low;
        cut_high += mask * policy.cut_high;
        if (!batch.entropy.empty()) entropy += mask * batch.entropy[t];
      }
    }
    metrics.add("clip_ratio/low_mean", cut_low, tokens);
    metrics.add("clip_ratio/high_mean", cut_high, tokens);
    metrics.add("clip_ratio/region_mean", cut_low + cut_high, tokens);
    if (beta_ > 0) metrics.add("kl", divergence, tokens);
    if (!batch.entropy.empty()) metrics.add("entropy", entropy, tokens);
    add_sampling_difference(batch, metrics);
    return sum;
  }

 private:
  double epsilon_ = 0.2, epsilon_high_ = -1, beta_ = 0;
  std::string loss_type_ = "dapo", scale_rewards_ = "group";
  int64_t max_completion_length_ = 0;
};

[[maybe_unused]] const bool added = objectives().add("grpo", [] { return std::unique_ptr<Objective>(new Grpo); });

}  // namespace
}  // namespace hone
