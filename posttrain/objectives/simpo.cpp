// The objective "simpo" (Meng et al. 2024), for pairs of completions. It needs no reference.
#include "data/source_column.h"
#include "posttrain/losses/pair_loss.h"
#include "posttrain/losses/surrogate.h"

namespace hone {
namespace {

struct SimpoSettings : ObjectiveSettings {
  double beta = 0.1, simpo_gamma = 0.5, label_smoothing = 0;

  void fields(Fields& f) override {
    f("beta", beta, "factor of the mean log-prob of a completion's tokens in its reward");
    f("simpo_gamma", simpo_gamma, "target margin between the rewards of the chosen and the rejected completion");
    f("label_smoothing", label_smoothing, "assumed share of pairs with swapped labels; 0 = none");
    f.require("beta", beta > 0, "beta must be above 0");
    f.require("label_smoothing", label_smoothing >= 0 && label_smoothing < 0.5, "label_smoothing must be in [0, 0.5)");
  }
  std::unique_ptr<Objective> make(const RunFacts&) const override;
};

// Simple preference optimization (Meng et al. 2024, eq. 6): no reference. The reward of a completion is beta times the
// mean log-prob of its tokens; the chosen one's reward should be higher by simpo_gamma.
class Simpo : public Objective {
 public:
  explicit Simpo(const SimpoSettings& settings) : settings_(settings) {}

  Needs needs() const override {
    return {.optional = {columns::source}, .unit = LossUnit::pair, .data = TrainingData::pairs};
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    double sum = 0;
    for (size_t s = 0; s + 1 < batch.num_sequences(); s += 2) {
      const SequenceSums chosen = sum_completion(batch, s), rejected = sum_completion(batch, s + 1);
      const double chosen_logp = chosen.logp * chosen.mean_weight(),
                   rejected_logp = rejected.logp * rejected.mean_weight();
      const PairLoss pair = logistic_loss(settings_.beta * (chosen_logp - rejected_logp) - settings_.simpo_gamma,
                                          settings_.label_smoothing);
      const double slope = settings_.beta * pair.dmargin * batch.scale;
      sum += pair.loss;
      add_sequence_gradient(batch, grad, s, slope * chosen.mean_weight());
      add_sequence_gradient(batch, grad, s + 1, -slope * rejected.mean_weight());
      add_pair_rewards(metrics, batch,
                       {.chosen_sequence = s,
                        .chosen = settings_.beta * chosen_logp,
                        .rejected = settings_.beta * rejected_logp,
                        .loss = pair.loss});
      metrics.add("logps/chosen", chosen_logp, 1);
      metrics.add("logps/rejected", rejected_logp, 1);
    }
    add_sampling_difference(batch, metrics);
    return sum * batch.scale;
  }

 private:
  const SimpoSettings settings_;
};

std::unique_ptr<Objective> SimpoSettings::make(const RunFacts&) const { return std::make_unique<Simpo>(*this); }

[[maybe_unused]] const bool added = add_objective<SimpoSettings>("simpo");

}  // namespace
}  // namespace hone
