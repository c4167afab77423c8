#include <algorithm>
#include <cstdint>

#include "posttrain/losses/pair_loss.h"

namespace hone {
namespace {

// A reward model's loss on pairs (Bradley and Terry 1952; Ouyang et al. 2022, eq. 1): the chosen text's score is to
// exceed the rejected one's. A score is the value of the text's last masked token (0 where there is none); the chosen
// one's advantage there is the margin it is to exceed it by.
class BradleyTerry : public Objective {
 public:
  void fields(Fields& f) override {
    f("center_rewards_coefficient", center_rewards_coefficient_,
      "weight of the squared sum of a pair's scores, which keeps their mean at 0");
    f.require("center_rewards_coefficient", center_rewards_coefficient_ >= 0,
              "center_rewards_coefficient must not be negative");
  }
  Needs needs() const override { return {.critic = true, .per = LossUnit::pair, .data = TrainingData::scored_pairs}; }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    double sum = 0;
    for (size_t s = 0; s + 1 < batch.num_sequences(); s += 2) {
      const size_t chosen_at = last_masked(batch, s), rejected_at = last_masked(batch, s + 1);
      const double chosen = chosen_at == none ? 0 : batch.value[chosen_at],
                   rejected = rejected_at == none ? 0 : batch.value[rejected_at];
      const double margin = chosen_at == none || batch.advantage.empty() ? 0 : batch.advantage[chosen_at];
      const PairLoss pair = logistic_loss(chosen - rejected - margin, 0);
      const double centre = 2 * center_rewards_coefficient_ * (chosen + rejected);
      sum += pair.loss + center_rewards_coefficient_ * (chosen + rejected) * (chosen + rejected);
      if (chosen_at != none) grad.value[chosen_at] = static_cast<float>((pair.dmargin + centre) * batch.scale);
      if (rejected_at != none) grad.value[rejected_at] = static_cast<float>((centre - pair.dmargin) * batch.scale);
      metrics.add("accuracy", chosen > rejected, 1);
      metrics.add("margin", chosen - rejected, 1);
      metrics.add("mean_reward", chosen + rejected, 2);
      metrics.minimum("min_reward", std::min(chosen, rejected));
      metrics.maximum("max_reward", std::max(chosen, rejected));
    }
    return sum * batch.scale;
  }

 private:
  static constexpr size_t none = SIZE_MAX;
  static size_t last_masked(const TokenBatch& batch, size_t sequence) {
    const auto begin = static_cast<size_t>(batch.offsets[sequence]);
    for (auto t = static_cast<size_t>(batch.offsets[sequence + 1]); t > begin; --t)
      if (batch.mask[t - 1] != 0) return t - 1;
    return none;
  }

  double center_rewards_coefficient_ = 0;
};

[[maybe_unused]] const bool added =
    objectives().add("bradley_terry", [] { return std::unique_ptr<Objective>(new BradleyTerry); });

}  // namespace
}  // namespace hone
