#include "posttrain/losses/surrogate.h"

#include <algorithm>
#include <cmath>

namespace hone {

LogRatio log_ratio(double logp, double other) {
  constexpr double limit = 20;
  const double difference = logp - other;
  return {std::clamp(difference, -limit, limit), !(std::abs(difference) > limit)};
}

PolicyTerm clipped_surrogate(const PolicyToken& token, const Clip& clip) {
  const double r = std::exp(token.ratio.value), advantage = token.advantage;
  PolicyTerm out;
  out.clipped_low = r < 1 - clip.low && advantage < 0;
  out.clipped_high = r > 1 + clip.high && advantage > 0;
  out.cut_delta = clip.delta > 0 && r > clip.delta && advantage < 0;
  if (out.clipped_low || out.clipped_high || out.cut_delta) {
    out.loss = -advantage * (out.clipped_low ? 1 - clip.low : out.clipped_high ? 1 + clip.high : clip.delta);
  } else {
    out.loss = -advantage * r;
    out.dratio_term = token.ratio.live ? out.loss : 0;
  }
  return out;
}

static PolicyTerm weighted_likelihood(double weight, const PolicyToken& token) {
  PolicyTerm out;
  out.dlogp_term = -weight * token.advantage;
  out.loss = out.dlogp_term * token.logp;
  return out;
}

PolicyTerm cispo(const PolicyToken& token, const Clip& clip) {
  const double r = std::exp(token.ratio.value);
  PolicyTerm out = weighted_likelihood(std::min(r, clip.high), token);
  out.clipped_high = r > clip.high && token.advantage > 0;
  return out;
}

PolicyTerm cispo_relative(const PolicyToken& token, const Clip& clip) {
  const double r = std::exp(token.ratio.value);
  PolicyTerm out = weighted_likelihood(std::clamp(r, 1 - clip.low, 1 + clip.high), token);
  out.clipped_low = r < 1 - clip.low;
  out.clipped_high = r > 1 + clip.high;
  return out;
}

PolicyTerm sapo(const PolicyToken& token, const Clip& clip) {
  const double r = std::exp(token.ratio.value), tau = token.advantage > 0 ? clip.tau_positive : clip.tau_negative;
  const double gate = 1 / (1 + std::exp(-tau * (r - 1)));
  PolicyTerm out;
  out.loss = -token.advantage * gate * 4 / tau;
  out.dratio_term = token.ratio.live ? -token.advantage * 4 * gate * (1 - gate) * r : 0;
  return out;
}

// `rose`: the token became more probable. `divergence`: how far its probability has moved.
static PolicyTerm inside_trust_region(const PolicyToken& token, const Clip& clip, bool rose, double divergence) {
  constexpr double default_bound = 20;
  const double r = std::exp(token.ratio.value), bound = clip.delta > 0 ? clip.delta : default_bound;
  const bool favored = token.advantage > 0;
  PolicyTerm out;
  if (favored == rose && divergence > (favored ? clip.high : clip.low)) {
    (favored ? out.clipped_high : out.clipped_low) = true;
    return out;
  }
  out = weighted_likelihood(std::min(r, bound), token);
  out.cut_delta = r > bound;
  return out;
}

PolicyTerm dppo_tv(const PolicyToken& token, const Clip& clip) {
  const double change = std::exp(token.logp) - std::exp(token.old_logp);
  return inside_trust_region(token, clip, change > 0, std::abs(change));
}

PolicyTerm dppo_kl(const PolicyToken& token, const Clip& clip) {
  constexpr double eps = 1e-8;  // verl's
  const double p = std::min(std::exp(token.logp), 1.0), old_p = std::min(std::exp(token.old_logp), 1.0);
  const double divergence =
      old_p * (token.old_logp - token.logp) + (1 - old_p) * std::log((1 - old_p + eps) / (1 - p + eps));
  return inside_trust_region(token, clip, p > old_p, divergence);
}

std::span<const float> denominator_logp(const TokenBatch& batch) {
  for (const Column column : {columns::old_logp, columns::behavior_logp})
    if (batch.has(column)) return batch[column];
  return batch[columns::logp];
}

void add_sampling_difference(const TokenBatch& batch, MetricSums& metrics) {
  if (!batch.has(columns::behavior_logp)) return;
  const std::span<const float> mask = batch[columns::mask], behavior_logp = batch[columns::behavior_logp],
                               learner = batch[batch.has(columns::old_logp) ? columns::old_logp : columns::logp];
  double sum = 0, tokens = 0, largest = 0;
  for (size_t t = 0; t < mask.size(); ++t) {
    if (mask[t] == 0) continue;
    const double difference = std::abs(static_cast<double>(behavior_logp[t]) - learner[t]);
    sum += difference;
    tokens += 1;
    largest = std::max(largest, difference);
  }
  if (tokens == 0) return;
  metrics.add("sampling/sampling_logp_difference/mean", sum, tokens);
  metrics.maximum("sampling/sampling_logp_difference/max", largest);
}

}  // namespace hone
