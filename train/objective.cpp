#include "train/objective.h"

#include <algorithm>
#include <iterator>

namespace hone {

std::string describe(TrainingData data) {
  switch (data) {
    case TrainingData::rewarded:
      return "completions that the stage itself samples and rewards (kind = \"rl\")";
    case TrainingData::completions:
      return "single completions (kind = \"sft\")";
    case TrainingData::labelled:
      return "labelled completions (kind = \"unpaired_preference\")";
    case TrainingData::pairs:
      return "pairs of a chosen and a rejected completion (kind = \"preference\"; hone pairs makes them)";
    case TrainingData::scored_pairs:
      return "the scores of a pair (kind = \"reward_model\")";
  }
  fail("objective: TrainingData ", static_cast<int>(data), " is unknown");
}

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

std::vector<std::string> objectives_for(TrainingData data) {
  std::vector<std::string> out;
  std::ranges::copy_if(objectives().names(), std::back_inserter(out),
                       [&](const std::string& name) { return objectives().at(name)()->needs().data == data; });
  return out;
}

}  // namespace hone
