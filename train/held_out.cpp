#include "train/held_out.h"

#include "model/token_logprobs.h"
#include "train/staging.h"

namespace hone {

Metrics measure_loss(Context& context, Model& model, Trainer& trainer, double temperature,
                     std::span<const Sample* const> samples, const Objective& objective) {
  const Needs needs = objective.needs();
  std::vector<std::vector<int32_t>> sequences;
  double count = 0;
  for (const Sample* sample : samples)
    sequences.push_back(sample->tokens), count += count_of(needs.unit, sample->columns.find(columns::mask));
  const std::vector<TokenLogprobs> scores =
      compute_logprobs(context, model, sequences, {.temperature = temperature, .entropy = needs.entropy});
  MicroBatchData staging;
  staging.fill(samples);
  staging.logp.clear();
  for (const TokenLogprobs& score : scores) {
    staging.logp.insert(staging.logp.end(), score.logp.begin(), score.logp.end());
    staging.entropy.insert(staging.entropy.end(), score.entropy.begin(), score.entropy.end());
  }
  if (needs.critic)
    for (const std::vector<float>& values : trainer.values(samples))
      staging.value.insert(staging.value.end(), values.begin(), values.end());
  const TokenGrad unused = staging.zeroed_grad();
  const TokenBatch batch = staging.batch(scale_of(count));
  check_batch(needs, batch);
  MetricSums metrics;
  const double loss = objective.loss(batch, unused, metrics);
  Metrics out = metrics.means();
  out["loss"] = loss;
  return out;
}

}  // namespace hone
