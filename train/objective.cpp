#include "train/objective.h"

namespace hone {

double count_of(LossUnit per, std::span<const float> mask) {
  if (per == LossUnit::sequence) return 1;
  if (per == LossUnit::pair) return 0.5;
  double sum = 0;
  for (const float m : mask) sum += m;
  return sum;
}

double scale_of(double count) { return count > 0 ? 1 / count : 1; }

void check_batch(const Needs& needs, const TokenBatch& batch) {
  HONE_CHECK(!batch.offsets.empty() && batch.offsets.front() == 0, "objective: offsets must start with 0");
  for (size_t s = 0; s < batch.num_sequences(); ++s)
    HONE_CHECK(batch.offsets[s] <= batch.offsets[s + 1], "objective: offsets fall at sequence ", s);
  const size_t tokens = batch.num_tokens();
  const auto column = [&](const char* name, std::span<const float> values, bool needed) {
    HONE_CHECK(!needed || tokens == 0 || !values.empty(), "objective: needs ", name, ", which this run does not have");
    HONE_CHECK(values.empty() || values.size() == tokens, "objective: ", name, " has ", values.size(), " entries for ",
               tokens, " tokens");
  };
  column("logp", batch.logp, true);
  column("mask", batch.mask, true);
  column("old_logp", batch.old_logp, needs.old);
  column("behavior_logp", batch.behavior_logp, needs.behavior && (needs.old || batch.old_logp.empty()));
  column("reference_logp", batch.reference_logp, needs.reference);
  column("entropy", batch.entropy, false);
  column("value", batch.value, needs.critic);
  column("old_value", batch.old_value, false);
  column("returns", batch.returns, false);
  column("advantage", batch.advantage, false);
  HONE_CHECK(needs.per != LossUnit::pair || batch.num_sequences() % 2 == 0, "objective: ", batch.num_sequences(),
             " sequences do not make pairs");
}

Metrics MetricSums::means() const {
  Metrics out;
  for (const auto& [name, sum] : sums_)
    if (sum.second != 0) out[name] = sum.first / sum.second;
  for (const auto& [name, value] : extremes_) out[name] = value;
  return out;
}

Metrics fold_metrics(std::span<const Metrics> updates) {
  MetricSums sums;
  for (const Metrics& update : updates)
    for (const auto& [name, value] : update) {
      if (name.ends_with("min"))
        sums.minimum(name, value);
      else if (name.ends_with("max"))
        sums.maximum(name, value);
      else
        sums.add(name, value, 1);
    }
  return sums.means();
}

Registry<ObjectiveFactory>& objectives() {
  static Registry<ObjectiveFactory> registry("objective");
  return registry;
}

}  // namespace hone
