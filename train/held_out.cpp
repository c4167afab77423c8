#include "train/held_out.h"

#include <cmath>

#include "train/micro_batch.h"
#include "train/shared_scores.h"

namespace hone {

Metrics measure_loss(Context& context, Model& model, Trainer& trainer, double temperature,
                     std::span<const Sample* const> samples, const Objective& objective, const Ranks& ranks) {
  const Needs needs = objective.needs();
  std::vector<std::vector<int32_t>> sequences;
  double count = 0;
  for (const Sample* sample : samples) {
    sequences.push_back(sample->tokens);
    count += count_of(needs.unit, sample->columns.find(columns::mask));
  }
  const std::vector<TokenLogprobs> scores =
      shared_logprobs(ranks, context, model, sequences,
                      {.temperature = temperature, .entropy = needs.entropy, .hit = needs.token_accuracy});
  MicroBatchData staging;
  staging.fill(samples);
  staging.logp.clear();
  for (const TokenLogprobs& score : scores) {
    staging.logp.insert(staging.logp.end(), score.logp.begin(), score.logp.end());
    staging.entropy.insert(staging.entropy.end(), score.entropy.begin(), score.entropy.end());
  }
  if (needs.critic)
    for (const std::vector<float>& values : shared_values(ranks, trainer, samples))
      staging.value.insert(staging.value.end(), values.begin(), values.end());
  const TokenGrad unused = staging.zeroed_grad();
  const TokenBatch batch = staging.batch(scale_of(count));
  check_batch(needs, batch);
  MetricSums metrics;
  const size_t counted = needs.unit == LossUnit::pair ? 2 : 1;  // of pairs the chosen completions
  for (size_t s = 0; needs.token_accuracy && s < scores.size(); s += counted) {
    const std::span<const float> mask = samples[s]->columns.find(columns::mask);
    for (size_t t = 0; t < mask.size(); ++t)
      if (mask[t] != 0) metrics.add("mean_token_accuracy", scores[s].hit[t], 1);
  }
  const double loss = objective.loss(batch, unused, metrics);
  Metrics out = metrics.means();
  out["loss"] = loss;
  return out;
}

void EarlyStopConfig::fields(Fields& f) {
  f("early_stopping_patience", early_stopping_patience,
    "evaluations without a lower eval_loss after which the stage ends; 0 = never");
  f("early_stopping_threshold", early_stopping_threshold, "smallest decrease of eval_loss that counts as lower");
  f("load_best_model_at_end", load_best_model_at_end,
    "true: the stage ends with the weights of its lowest eval_loss; false: with the last ones");
  f.require("early_stopping_patience", early_stopping_patience >= 0, "early_stopping_patience must be 0 or more");
  f.require("early_stopping_threshold", early_stopping_threshold >= 0, "early_stopping_threshold must be 0 or more");
}

bool EarlyStop::observe(int64_t step, double loss) {
  const bool first = best_step_ == 0, lower = std::isfinite(loss) && (first || loss < best_);
  misses_ = lower && (first || best_ - loss > config_.early_stopping_threshold) ? 0 : misses_ + 1;
  if (lower) {
    best_ = loss;
    best_step_ = step;
  }
  return lower;
}

void EarlyStop::save_state(StateSection& section) const {
  section.values.set("best", best_);
  section.values.set("best_step", best_step_);
  section.values.set("misses", misses_);
}

void EarlyStop::load_state(const StateSection& section) {
  best_ = section.values.at("best", "early stop").as_double("early stop: best");
  best_step_ = section.values.at("best_step", "early stop").as_int("early stop: best_step");
  misses_ = section.values.at("misses", "early stop").as_int("early stop: misses");
}

}  // namespace hone
