#include "posttrain/losses/surrogate.h"

#include <algorithm>
#include <cmath>

namespace hone {

LogRatio log_ratio(double logp, double other) {
  constexpr double limit = 20;
  const double difference = logp - other;
  return {std::clamp(difference, -limit, limit), !(std::abs(difference) > limit)};
}

PolicyTerm clipped_surrogate(LogRatio ratio, double, double advantage, const Clip& clip) {
  const double r = std::exp(ratio.value);
  PolicyTerm out;
  out.clipped_low = r < 1 - clip.low && advantage < 0;
  out.clipped_high = r > 1 + clip.high && advantage > 0;
  out.cut_delta = clip.delta > 0 && r > clip.delta && advantage < 0;
  if (out.clipped_low || out.clipped_high || out.cut_delta) {
    out.loss = -advantage * (out.clipped_low ? 1 - clip.low : out.clipped_high ? 1 + clip.high : clip.delta);
  } else {
    out.loss = -advantage * r;
    out.dratio_term = ratio.live ? out.loss : 0;
  }
  return out;
}

static PolicyTerm weighted_likelihood(double weight, double logp, double advantage) {
  PolicyTerm out;
  out.dlogp_term = -weight * advantage;
  out.loss = out.dlogp_term * logp;
  return out;
}

PolicyTerm cispo(LogRatio ratio, double logp, double advantage, const Clip& clip) {
  const double r = std::exp(ratio.value);
  PolicyTerm out = weighted_likelihood(std::min(r, clip.high), logp, advantage);
  out.clipped_high = r > clip.high && advantage > 0;
  return out;
}

PolicyTerm cispo_relative(LogRatio ratio, double logp, double advantage, const Clip& clip) {
  const double r = std::exp(ratio.value);
  PolicyTerm out = weighted_likelihood(std::clamp(r, 1 - clip.low, 1 + clip.high), logp, advantage);
  out.clipped_low = r < 1 - clip.low;
  out.clipped_high = r > 1 + clip.high;
  return out;
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
