#include "posttrain/surrogate.h"

#include <algorithm>
#include <cmath>

namespace hone {

LogRatio log_ratio(double logp, double other) {
  constexpr double limit = 20;
  const double difference = logp - other;
  return {std::clamp(difference, -limit, limit), !(std::abs(difference) > limit)};
}

ClippedTerm clipped_surrogate(LogRatio ratio, double advantage, double low, double high) {
  const double r = std::exp(ratio.value);
  ClippedTerm out;
  out.cut_low = r < 1 - low && advantage < 0;
  out.cut_high = r > 1 + high && advantage > 0;
  if (out.cut_low || out.cut_high) {
    out.loss = -advantage * (out.cut_low ? 1 - low : 1 + high);
  } else {
    out.loss = -advantage * r;
    out.slope = ratio.live ? out.loss : 0;
  }
  return out;
}

Term kl_k3(double logp, double reference_logp) {
  const LogRatio q = log_ratio(reference_logp, logp);
  return {std::expm1(q.value) - q.value, q.live ? -std::expm1(q.value) : 0};
}

std::span<const float> denominator_logp(const TokenBatch& batch) {
  if (!batch.old_logp.empty()) return batch.old_logp;
  return batch.behavior_logp.empty() ? batch.logp : batch.behavior_logp;
}

void add_sampling_difference(const TokenBatch& batch, MetricSums& metrics) {
  if (batch.behavior_logp.empty()) return;
  double sum = 0, tokens = 0, largest = 0;
  for (size_t t = 0; t < batch.mask.size(); ++t) {
    if (batch.mask[t] == 0) continue;
    const double difference = std::abs(static_cast<double>(batch.behavior_logp[t]) - batch.logp[t]);
    sum += difference, tokens += 1, largest = std::max(largest, difference);
  }
  if (tokens == 0) return;
  metrics.add("sampling/sampling_logp_difference/mean", sum, tokens);
  metrics.maximum("sampling/sampling_logp_difference/max", largest);
}

}  // namespace hone
