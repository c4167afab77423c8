// The objective "orpo" (Hong et al. 2024), for pairs of completions. It needs no reference.
#include <algorithm>
#include <cmath>

#include "data/source_column.h"
#include "posttrain/losses/pair_loss.h"
#include "posttrain/losses/surrogate.h"

namespace hone {
namespace {

// log(p / (1 - p)) of a completion whose mean log-prob is log p, and its derivative by log p. The odds are infinite at
// p = 1, so log p is clamped just below 0; beyond the limit the derivative is 0.
PairLoss log_odds(double mean_logp) {
  constexpr double limit = -1e-6;
  const double x = std::min(mean_logp, limit);
  return {x - std::log(-std::expm1(x)), mean_logp < limit ? -1 / std::expm1(x) : 0};
}

struct OrpoSettings : ObjectiveSettings {
  double beta = 0.1;

  void fields(Fields& f) override {
    f("beta", beta, "weight of the odds ratio loss (the paper's lambda)");
    f.require("beta", beta >= 0, "beta must not be negative");
  }
  std::unique_ptr<Objective> make(const RunFacts&) const override;
};

// Odds ratio preference optimization (Hong et al. 2024, eq. 6 and 7): the negative log-likelihood of the chosen
// completion plus beta times the logistic loss of the log odds ratio. No reference.
class Orpo : public Objective {
 public:
  explicit Orpo(const OrpoSettings& settings) : settings_(settings) {}

  Needs needs() const override {
    return {.optional = {columns::source}, .unit = LossUnit::pair, .data = TrainingData::pairs};
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    double sum = 0;
    for (size_t s = 0; s + 1 < batch.num_sequences(); s += 2) {
      const SequenceSums chosen = sum_completion(batch, s), rejected = sum_completion(batch, s + 1);
      const double chosen_logp = chosen.logp * chosen.mean_weight(),
                   rejected_logp = rejected.logp * rejected.mean_weight();
      const PairLoss chosen_odds = log_odds(chosen_logp), rejected_odds = log_odds(rejected_logp);
      const double ratio = chosen_odds.loss - rejected_odds.loss;
      const PairLoss pair = logistic_loss(ratio, 0);
      const double loss = settings_.beta * pair.loss - chosen_logp;
      sum += loss;
      add_sequence_gradient(
          batch, grad, s,
          (settings_.beta * pair.dmargin * chosen_odds.dmargin - 1) * chosen.mean_weight() * batch.scale);
      add_sequence_gradient(
          batch, grad, s + 1,
          -settings_.beta * pair.dmargin * rejected_odds.dmargin * rejected.mean_weight() * batch.scale);
      add_pair_rewards(metrics, batch,
                       {.chosen_sequence = s,
                        .chosen = settings_.beta * chosen_logp,
                        .rejected = settings_.beta * rejected_logp,
                        .loss = loss});
      metrics.add("logps/chosen", chosen_logp, 1);
      metrics.add("logps/rejected", rejected_logp, 1);
      metrics.add("nll_loss", -chosen_logp, 1);
      metrics.add("log_odds_chosen", ratio, 1);
      metrics.add("log_odds_ratio", -pair.loss, 1);
    }
    add_sampling_difference(batch, metrics);
    return sum * batch.scale;
  }

 private:
  const OrpoSettings settings_;
};

std::unique_ptr<Objective> OrpoSettings::make(const RunFacts&) const { return std::make_unique<Orpo>(*this); }

[[maybe_unused]] const bool added = add_objective<OrpoSettings>("orpo");

}  // namespace
}  // namespace hone
