#include "posttrain/losses/policy_loss.h"

#include <algorithm>
#include <cmath>

#include "data/trajectory.h"
#include "posttrain/losses/advantage.h"
#include "posttrain/losses/kl_estimators.h"

namespace hone {
namespace {

// What token losses are averaged over, by verl's names. A mean over sequences is one of a number of each sequence: its
// token sum times sequence_weight.
struct Aggregation {
  LossUnit unit;
  double (*sequence_weight)(double tokens, int64_t max_completion_length);
};

double by_length(double, int64_t max_completion_length) { return 1 / static_cast<double>(max_completion_length); }

const Registry<Aggregation>& aggregations() {
  static const Registry<Aggregation> registry = [] {
    Registry<Aggregation> r("loss_agg_mode");
    const auto one = [](double, int64_t) { return 1.0; };
    r.add("token-mean", {LossUnit::token, one});
    r.add("seq-mean-token-mean",
          {LossUnit::sequence, [](double tokens, int64_t) { return 1 / std::max(tokens, 1.0); }});
    r.add("seq-mean-token-sum", {LossUnit::sequence, one});
    r.add("seq-mean-token-sum-norm", {LossUnit::sequence, by_length});
    return r;
  }();
  return registry;
}

// dapo and bnpo are equal here, since micro-batches do not change the average.
struct LossType {
  Surrogate surrogate;
  const char* aggregation;
};

const Registry<LossType>& loss_types() {
  static const Registry<LossType> registry = [] {
    Registry<LossType> r("loss_type");
    r.add("dapo", {clipped_surrogate, "token-mean"});
    r.add("bnpo", {clipped_surrogate, "token-mean"});
    r.add("grpo", {clipped_surrogate, "seq-mean-token-mean"});
    r.add("dr_grpo", {clipped_surrogate, "seq-mean-token-sum-norm"});
    r.add("seq-mean-token-sum", {clipped_surrogate, "seq-mean-token-sum"});
    r.add("cispo", {cispo, "token-mean"});
    r.add("cispo_relative", {cispo_relative, "token-mean"});
    r.add("sapo", {sapo, "seq-mean-token-mean"});
    r.add("dppo_tv", {dppo_tv, "token-mean"});
    r.add("dppo_kl", {dppo_kl, "token-mean"});
    return r;
  }();
  return registry;
}

bool is_dppo(const LossType& type) { return type.surrogate == dppo_tv || type.surrogate == dppo_kl; }

const Aggregation& aggregation_of(const PolicyLoss& loss) {
  const bool own = loss.loss_agg_mode == "auto";
  return aggregations().at(own ? loss_types().at(loss.loss_type).aggregation : loss.loss_agg_mode);
}

// The ratio in a token's surrogate: the token's own ratio, the geometric mean of the sequence's ratios (GSPO, Zheng et
// al. 2025, eq. 7), or their product (TRL's RLOO).
struct Level {
  bool shared;
  double (*share)(double tokens);  // share of a token's log-ratio in the sequence's
};

const Registry<Level>& levels() {
  static const Registry<Level> registry = [] {
    Registry<Level> r("importance_sampling_level");
    r.add("token", {false, nullptr});
    r.add("sequence", {true, [](double tokens) { return 1 / std::max(tokens, 1.0); }});
    r.add("trajectory", {true, [](double) { return 1.0; }});
    return r;
  }();
  return registry;
}

// Masked sums over a sequence.
struct Sums {
  double tokens = 0, low = 0, high = 0, delta = 0, kl = 0, entropy = 0, bonus = 0, moved = 0;
};

}  // namespace

void PolicyLoss::fields(Fields& f, Keys keys) {
  f(keys.epsilon, epsilon,
    "the ratio is clipped below at 1 - this, and above at 1 + this unless epsilon_high is set; with dppo_*: greatest "
    "divergence of a token with a negative advantage, and of the others unless epsilon_high is set");
  f("epsilon_high", epsilon_high,
    "the ratio is clipped above at 1 + this; below 0: at 1 + epsilon; with cispo this is the upper bound of the ratio "
    "itself (for example 5), with dppo_* the greatest divergence of a token with a positive advantage");
  f("delta", delta,
    "dual clip: upper bound of the ratio if the advantage is negative (verl's clip_ratio_c, 3 there); 0 = none; with "
    "dppo_*: upper bound of the ratio, 0 = 20");
  f("loss_type", loss_type,
    "how token losses are averaged: dapo | bnpo: over the step's tokens; grpo: over each sequence's tokens, then over "
    "sequences; dr_grpo: each sequence's sum / max_completion_length, then over sequences; seq-mean-token-sum: each "
    "sequence's sum, over sequences. Or what takes the place of the clip: with the average of dapo cispo (the ratio is "
    "a constant, at most epsilon_high) | cispo_relative (a constant in [1 - epsilon, 1 + epsilon_high]) | dppo_tv | "
    "dppo_kl (no term where the token's probability has moved too far); with the average of grpo sapo (a soft gate)");
  f("loss_agg_mode", loss_agg_mode,
    "what token losses are averaged over: auto: as loss_type says | token-mean | seq-mean-token-mean | "
    "seq-mean-token-sum | seq-mean-token-sum-norm (divided by max_completion_length)");
  f("sapo_temperature_pos", sapo_temperature_pos, "sapo: temperature of the gate for positive advantages");
  f("sapo_temperature_neg", sapo_temperature_neg, "sapo: temperature of the gate for the other advantages");
  f("importance_sampling_level", importance_sampling_level,
    "token | sequence (GSPO: the mean log-ratio) | trajectory (the sum): whose ratio is clipped");
  f("max_completion_length", max_completion_length,
    "dr_grpo, seq-mean-token-sum-norm: divisor of a sequence's sum, in tokens; must then be above 0");
  f(keys.beta, beta, "weight of the KL divergence from the reference in the loss; 0 = none");
  f("kl_loss_type", kl_loss_type, "k1 | k2 | k3: estimator of this divergence in the loss");
  f("use_bias_correction_kl", use_bias_correction_kl, "multiply each token's divergence by its ratio (DeepSeek-V3.2)");
  f("entropy_coef", entropy_coef, "weight of the entropy bonus; 0 = none");
  f("mask_truncated_completions", mask_truncated_completions,
    "true: completions cut off at the length limit are scored, but not trained on");
  correction.fields(f);
  f("off_policy_mask_threshold", off_policy_mask_threshold,
    "the policy terms with a negative advantage of a sequence are dropped if the mean of its behavior log-probs minus "
    "its log-probs is above this (DeepSeek-V3.2; for example 0.5); 0 = none");
  rejection.fields(f);
  top_entropy.fields(f);
  length_penalty.fields(f);
  require_sense(f, keys);
}

void PolicyLoss::require_sense(Fields& f, Keys keys) const {
  f.require(keys.epsilon, epsilon >= 0 && epsilon <= 1, concat(keys.epsilon, " must be in [0, 1]"));
  f.require("loss_type", loss_types().contains(loss_type), loss_types().unknown(loss_type));
  f.require("epsilon_high", loss_type != "cispo" || epsilon_high > 0,
            "cispo bounds the ratio by epsilon_high itself: set it above 0 (for example to 5)");
  f.require("loss_agg_mode", loss_agg_mode == "auto" || aggregations().contains(loss_agg_mode),
            aggregations().unknown(loss_agg_mode) + ", auto");
  const LossType& type = loss_types().at(loss_type);
  f.require("delta", delta == 0 || type.surrogate == clipped_surrogate || is_dppo(type),
            concat(loss_type, " bounds its ratio already: no delta"));
  f.require("delta", delta == 0 || delta > 1 + (is_dppo(type) ? 0 : std::max(epsilon, epsilon_high)),
            "delta must be 0, or above 1 + the upper clip");
  f.require("sapo_temperature_pos", sapo_temperature_pos > 0, "sapo_temperature_pos must be above 0");
  f.require("sapo_temperature_neg", sapo_temperature_neg > 0, "sapo_temperature_neg must be above 0");
  f.require("importance_sampling_level", levels().contains(importance_sampling_level),
            levels().unknown(importance_sampling_level));
  f.require("importance_sampling_level", importance_sampling_level == "token" || !is_dppo(type),
            concat(loss_type, " compares probabilities of a token: importance_sampling_level must be token"));
  f.require("max_completion_length", aggregation_of(*this).sequence_weight != by_length || max_completion_length > 0,
            concat(loss_agg_mode == "auto" ? loss_type : loss_agg_mode, " needs a length above 0"));
  f.require(keys.beta, beta >= 0, concat(keys.beta, " must not be negative"));
  f.require(
      "use_bias_correction_kl", !use_bias_correction_kl || beta > 0,
      concat("use_bias_correction_kl corrects the KL divergence in the loss: it needs a ", keys.beta, " above 0"));
  f.require("kl_loss_type", kl_estimators().contains(kl_loss_type), kl_estimators().unknown(kl_loss_type));
  f.require("off_policy_mask_threshold", off_policy_mask_threshold >= 0,
            "off_policy_mask_threshold must not be negative");
}

Needs PolicyLoss::needs() const {
  Needs out{
      .columns = {columns::behavior_logp, columns::advantage}, .entropy = true, .unit = aggregation_of(*this).unit};
  if (correction.on() || rejection.on()) out.columns.push_back(columns::old_logp);
  if (beta > 0) out.columns.push_back(columns::reference_logp);
  top_entropy.add_needs(out);
  return out;
}

std::vector<std::string> PolicyLoss::warnings(const RunFacts& facts) const {
  std::vector<std::string> out;
  const LossType& type = loss_types().at(loss_type);
  const Aggregation& average = aggregation_of(*this);
  const bool by_token = average.unit == LossUnit::token || average.sequence_weight == by_length;
  if (levels().at(importance_sampling_level).shared && by_token)
    out.push_back(concat(
        "importance_sampling_level = ", importance_sampling_level,
        " gives every token of a completion one ratio, and loss_type = ", loss_type,
        " sums over tokens: long completions weigh more; loss_type = grpo gives all completions the same weight"));
  if (epsilon == 0 && type.surrogate == clipped_surrogate)
    out.push_back("epsilon is 0: a token whose probability has moved at all is clipped");
  if (facts.off_policy && correction.mode == "none")
    out.push_back(
        "importance_sampling_mode = none: completions are sampled from another distribution than the learner's, and "
        "trained on without a correction");
  return out;
}

bool PolicyLoss::has_no_gradient(const Sample& sample) const {
  const bool advantages_alone = beta == 0 && entropy_coef == 0;
  const std::span<const float> mask = sample.columns.find(columns::mask),
                               advantage = sample.columns.find(columns::advantage);
  const std::span<const float> selected =
      top_entropy.on() ? sample.columns.find(columns::top_entropy) : std::span<const float>();
  const auto is_idle = [&](size_t t) {
    const bool left_out = t < selected.size() && selected[t] == 0;
    return mask[t] == 0 || (advantages_alone && (left_out || (t < advantage.size() && advantage[t] == 0)));
  };
  for (size_t t = 0; t < mask.size(); ++t)
    if (!is_idle(t)) return false;
  return true;
}

void PolicyLoss::mask_truncated(std::span<Group> groups) const {
  if (!mask_truncated_completions) return;
  for (Group& group : groups)
    for (Sample& sample : group.samples)
      if (is_limit_reason(sample.completion.finish_reason)) clear_mask(sample);
}

void PolicyLoss::select_tokens(std::span<Group> groups, MetricSums& metrics) const {
  mask_truncated(groups);
  rejection.reject(groups, metrics);
  top_entropy.select(groups, metrics);
}

double PolicyLoss::token_weight(const TokenBatch& batch, size_t s) const {
  const auto begin = static_cast<size_t>(batch.offsets[s]), end = static_cast<size_t>(batch.offsets[s + 1]);
  return batch.scale *
         aggregation_of(*this).sequence_weight(
             count_of(LossUnit::token, batch[columns::mask].subspan(begin, end - begin)), max_completion_length);
}

namespace {

// One sequence of a batch: tokens [begin, end). `tokens` of them are trained on, each with `weight` in the step's loss.
struct Sequence {
  const TokenBatch& batch;
  size_t begin, end;
  double tokens, weight;
  template <class F>
  void for_masked(F visit) const {
    const std::span<const float> mask = batch[columns::mask];
    for (size_t t = begin; t < end; ++t)
      if (mask[t] != 0) visit(t, static_cast<double>(mask[t]));
  }
};

// KL divergence from the reference in the loss, unless beta is 0. by_ratio: multiplies a token's divergence by its
// ratio, so that the gradient is that of the divergence under the current policy (DeepSeek-V3.2 2025).
struct KlPart {
  double beta;
  KlEstimator estimate;
  bool by_ratio;
};

// The part of the loss that depends on a sequence's log-probs: each token's surrogate times its policy weight, and KL.
// Writes grad.logp.
double logp_loss(const Sequence& sequence, const LossType& type, const Level& level, const Clip& clip,
                 std::span<const double> policy_weights, const KlPart& kl, TokenGrad grad, Sums& sums) {
  const TokenBatch& batch = sequence.batch;
  const std::span<const float> logp = batch[columns::logp], advantage = batch[columns::advantage],
                               old_logp = denominator_logp(batch), reference_logp = batch.find(columns::reference_logp);
  const double share = level.shared ? level.share(sequence.tokens) : 0;
  double loss = 0, difference = 0, shared_slope = 0;
  if (level.shared)
    sequence.for_masked(
        [&](size_t t, double mask) { difference += share * mask * (static_cast<double>(logp[t]) - old_logp[t]); });
  sequence.for_masked([&](size_t t, double mask) {
    const LogRatio ratio = level.shared ? log_ratio(difference, 0) : log_ratio(logp[t], old_logp[t]);
    const PolicyTerm term =
        type.surrogate({.ratio = ratio, .logp = logp[t], .old_logp = old_logp[t], .advantage = advantage[t]}, clip);
    const double weight = sequence.weight * mask * policy_weights[t - sequence.begin];
    loss += weight * term.loss;
    double dlogp_term = weight * term.dlogp_term, dratio_term = weight * term.dratio_term;
    if (kl.beta > 0) {
      const Term divergence = kl.estimate(logp[t], reference_logp[t]);
      const double factor = kl.by_ratio ? std::exp(ratio.value) : 1,
                   kl_weight = sequence.weight * mask * kl.beta * factor;
      loss += kl_weight * divergence.loss;
      dlogp_term += kl_weight * divergence.dlogp;
      if (kl.by_ratio && ratio.live) dratio_term += kl_weight * divergence.loss;
      sums.kl += mask * factor * divergence.loss;
    }
    shared_slope += dratio_term;
    grad.logp[t] = static_cast<float>(dlogp_term + (level.shared ? 0 : dratio_term));
    sums.low += mask * term.clipped_low;
    sums.high += mask * term.clipped_high;
    sums.delta += mask * term.cut_delta;
    sums.moved += mask * log_ratio(old_logp[t], logp[t]).value;
  });
  if (level.shared)
    sequence.for_masked(
        [&](size_t t, double mask) { grad.logp[t] += static_cast<float>(shared_slope * share * mask); });
  return loss;
}

// Adds the clip fractions: of tokens, or of sequences if the ratio is a sequence's. CISPO bounds a weight and cuts no
// gradient, DPPO drops terms, and SAPO cuts nothing, so their metrics have other names (TRL's and verl's).
void add_clip_metrics(const Sums& sums, double count, const LossType& type, bool dual, MetricSums& metrics) {
  const auto fraction = [&](const char* name, double cut) { metrics.add(name, count * cut / sums.tokens, count); };
  if (type.surrogate == cispo) return fraction("cispo_clip_ratio", sums.high);
  if (type.surrogate == sapo || is_dppo(type)) metrics.add("actor/ppo_kl", sums.moved, sums.tokens);
  if (type.surrogate == sapo) return;
  if (is_dppo(type)) fraction("actor/pg_clipfrac_lower", sums.delta);
  if (type.surrogate == cispo_relative || is_dppo(type)) return fraction("actor/pg_clipfrac", sums.low + sums.high);
  fraction("clip_ratio/low_mean", sums.low);
  fraction("clip_ratio/high_mean", sums.high);
  fraction("clip_ratio/region_mean", sums.low + sums.high);
  metrics.minimum("clip_ratio/low_min", sums.low / sums.tokens);
  metrics.maximum("clip_ratio/high_max", sums.high / sums.tokens);
  if (dual) fraction("clip_ratio/delta_mean", sums.delta);
}

}  // namespace

std::vector<double> PolicyLoss::policy_weights(const TokenBatch& batch, size_t s, MetricSums& metrics) const {
  const auto begin = static_cast<size_t>(batch.offsets[s]), end = static_cast<size_t>(batch.offsets[s + 1]);
  std::vector<double> out =
      correction.on() ? correction.weights(batch, s, metrics) : std::vector<double>(end - begin, 1);
  if (top_entropy.on()) {
    const std::span<const float> selected = batch[columns::top_entropy];
    for (size_t t = begin; t < end; ++t)
      if (selected[t] == 0) out[t - begin] = 0;
  }
  if (off_policy_mask_threshold == 0) return out;
  const std::span<const float> mask = batch[columns::mask], logp = batch[columns::logp],
                               advantage = batch[columns::advantage],
                               sampled = batch.has(columns::behavior_logp) ? batch[columns::behavior_logp]
                                                                           : denominator_logp(batch);
  double sum = 0, tokens = 0;
  for (size_t t = begin; t < end; ++t) {
    if (mask[t] == 0) continue;
    sum += mask[t] * (static_cast<double>(sampled[t]) - logp[t]);
    tokens += mask[t];
  }
  const bool is_far = sum > off_policy_mask_threshold * tokens;
  for (size_t t = begin; t < end; ++t) {
    if (mask[t] == 0) continue;
    const bool dropped = is_far && advantage[t] < 0;
    if (dropped) out[t - begin] = 0;
    metrics.add("opsm_clipfrac", mask[t] * dropped, mask[t]);
  }
  return out;
}

double PolicyLoss::evaluate(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const {
  const std::span<const float> mask = batch[columns::mask], entropy = batch.find(columns::entropy);
  HONE_CHECK(entropy_coef == 0 || !entropy.empty() || batch.num_tokens() == 0,
             "objective: entropy_coef needs the policy's entropy");
  const LossType& type = loss_types().at(loss_type);
  const Level& level = levels().at(importance_sampling_level);
  const KlPart kl{.beta = beta, .estimate = kl_estimators().at(kl_loss_type), .by_ratio = use_bias_correction_kl};
  const Clip clip{.low = epsilon,
                  .high = epsilon_high < 0 ? epsilon : epsilon_high,
                  .delta = delta,
                  .tau_positive = sapo_temperature_pos,
                  .tau_negative = sapo_temperature_neg};
  double loss = 0;
  for (size_t s = 0; s < batch.num_sequences(); ++s) {
    const auto begin = static_cast<size_t>(batch.offsets[s]), end = static_cast<size_t>(batch.offsets[s + 1]);
    const Sequence sequence{batch, begin, end, count_of(LossUnit::token, mask.subspan(begin, end - begin)),
                            token_weight(batch, s)};
    if (sequence.tokens == 0) continue;
    const std::vector<double> weights = policy_weights(batch, s, metrics);
    Sums sums{.tokens = sequence.tokens};
    loss += logp_loss(sequence, type, level, clip, weights, kl, grad, sums);
    if (!entropy.empty()) sequence.for_masked([&](size_t t, double m) { sums.entropy += m * entropy[t]; });
    if (entropy_coef != 0)
      sequence.for_masked([&](size_t t, double m) {
        if (top_entropy.on() && batch[columns::top_entropy][t] == 0) return;
        sums.bonus += m * entropy[t];
        grad.entropy[t] = static_cast<float>(-sequence.weight * m * entropy_coef);
      });
    loss -= sequence.weight * entropy_coef * sums.bonus;
    add_clip_metrics(sums, level.shared ? 1 : sums.tokens, type, delta > 0, metrics);
    if (beta > 0) metrics.add("kl", sums.kl, sums.tokens);
    if (!entropy.empty()) metrics.add("entropy", sums.entropy, sums.tokens);
  }
  add_sampling_difference(batch, metrics);
  return loss;
}

void PolicyGradient::compute_advantages(std::span<Group> groups, MetricSums& metrics) {
  select_tokens(groups, metrics);
  for (Group& group : groups)
    for (Sample& sample : group.samples) set_advantage(sample, 0);
  const ShapedRewards shaped(policy_.length_penalty, groups, metrics);
  fill_advantages(groups, metrics);
}

}  // namespace hone
