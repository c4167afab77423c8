// The objective "bradley_terry": the loss of reward models on pairs.
#include <algorithm>
#include <cstdint>

#include "data/source_column.h"
#include "posttrain/losses/pair_loss.h"

namespace hone {
namespace {

struct BradleyTerrySettings : ObjectiveSettings {
  double center_rewards_coefficient = 0;

  void fields(Fields& f) override {
    f("center_rewards_coefficient", center_rewards_coefficient,
      "weight of the squared sum of a pair's scores, which keeps their mean near 0; 0 = none");
    f.require("center_rewards_coefficient", center_rewards_coefficient >= 0,
              "center_rewards_coefficient must not be negative");
  }
  std::unique_ptr<Objective> make(const RunFacts&) const override;
};

// A reward model's loss on pairs (Bradley and Terry 1952; Ouyang et al. 2022, eq. 1): the chosen text's score should
// exceed the rejected one's, by the margin of the pair if there is one. A score is the value of the text's last masked
// token; it is 0 if no token is masked.
class BradleyTerry : public Objective {
 public:
  explicit BradleyTerry(const BradleyTerrySettings& settings) : settings_(settings) {}

  Needs needs() const override {
    return {.optional = {columns::margin, columns::source},
            .critic = true,
            .unit = LossUnit::pair,
            .data = TrainingData::scored_pairs};
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const std::span<const float> value = batch[columns::value], margins = batch.find(columns::margin);
    double sum = 0;
    for (size_t s = 0; s + 1 < batch.num_sequences(); s += 2) {
      const size_t chosen_at = last_masked(batch, s), rejected_at = last_masked(batch, s + 1);
      const double chosen = chosen_at == none ? 0 : value[chosen_at],
                   rejected = rejected_at == none ? 0 : value[rejected_at];
      const double margin = chosen_at == none || margins.empty() ? 0 : margins[s];
      const PairLoss pair = logistic_loss(chosen - rejected - margin, 0);
      const double centre = 2 * settings_.center_rewards_coefficient * (chosen + rejected);
      const double loss = pair.loss + settings_.center_rewards_coefficient * (chosen + rejected) * (chosen + rejected);
      sum += loss;
      if (chosen_at != none) grad.value[chosen_at] = static_cast<float>((pair.dmargin + centre) * batch.scale);
      if (rejected_at != none) grad.value[rejected_at] = static_cast<float>((centre - pair.dmargin) * batch.scale);
      metrics.add("accuracy", chosen > rejected, 1);
      metrics.add("margin", chosen - rejected, 1);
      if (batch.has(columns::source)) {
        const float source = batch[columns::source][s];
        metrics.add(source_metric("accuracy", source), chosen > rejected, 1);
        metrics.add(source_metric("margin", source), chosen - rejected, 1);
        metrics.add(source_metric("loss", source), loss, 1);
      }
      metrics.add("mean_reward", chosen + rejected, 2);
      metrics.minimum("min_reward", std::min(chosen, rejected));
      metrics.maximum("max_reward", std::max(chosen, rejected));
    }
    return sum * batch.scale;
  }

 private:
  static constexpr size_t none = SIZE_MAX;
  static size_t last_masked(const TokenBatch& batch, size_t sequence) {
    const std::span<const float> mask = batch[columns::mask];
    const auto begin = static_cast<size_t>(batch.offsets[sequence]);
    for (auto t = static_cast<size_t>(batch.offsets[sequence + 1]); t > begin; --t)
      if (mask[t - 1] != 0) return t - 1;
    return none;
  }

  const BradleyTerrySettings settings_;
};

std::unique_ptr<Objective> BradleyTerrySettings::make(const RunFacts&) const {
  return std::make_unique<BradleyTerry>(*this);
}

[[maybe_unused]] const bool added = add_objective<BradleyTerrySettings>("bradley_terry");

}  // namespace
}  // namespace hone
