#include "posttrain/losses/pair_loss.h"

#include <algorithm>
#include <cmath>

namespace hone {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

PairLoss logistic_loss(double z, double smoothing) {
  return {(1 - smoothing) * softplus(-z) + smoothing * softplus(z),
          smoothing * sigmoid(z) - (1 - smoothing) * sigmoid(-z)};
}

// Calls visit(t, weight) for the completion's masked tokens.
template <class Visit>
static void for_tokens(const TokenBatch& batch, size_t sequence, TokenWeights weights, Visit visit) {
  const std::span<const float> masks = batch[columns::mask];
  double before = 0;
  for (auto t = static_cast<size_t>(batch.offsets[sequence]); t < static_cast<size_t>(batch.offsets[sequence + 1]);
       ++t) {
    const double mask = masks[t];
    if (mask == 0) continue;
    visit(t, before < weights.first_tokens ? mask : mask * weights.tail);
    before += mask;
  }
}

SequenceSums sum_completion(const TokenBatch& batch, size_t sequence, TokenWeights weights) {
  const std::span<const float> mask = batch[columns::mask], logp = batch[columns::logp],
                               reference_logp = batch.find(columns::reference_logp);
  SequenceSums out;
  for_tokens(batch, sequence, weights, [&](size_t t, double weight) {
    out.tokens += mask[t];
    out.logp += weight * logp[t];
    if (!reference_logp.empty()) out.log_ratio += weight * (static_cast<double>(logp[t]) - reference_logp[t]);
  });
  return out;
}

void add_sequence_gradient(const TokenBatch& batch, TokenGrad grad, size_t sequence, double slope,
                           TokenWeights weights) {
  for_tokens(batch, sequence, weights,
             [&](size_t t, double weight) { grad.logp[t] = static_cast<float>(slope * weight); });
}

void add_pair_rewards(MetricSums& metrics, double chosen, double rejected) {
  metrics.add("rewards/chosen", chosen, 1);
  metrics.add("rewards/rejected", rejected, 1);
  metrics.add("rewards/accuracies", chosen > rejected, 1);
  metrics.add("rewards/margins", chosen - rejected, 1);
}

}  // namespace hone
