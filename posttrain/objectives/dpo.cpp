// The objective "dpo" (Rafailov et al. 2023) with its loss types, for pairs of completions.
#include <algorithm>

#include "data/source_column.h"
#include "posttrain/losses/pair_loss.h"

namespace hone {
namespace {

// Rafailov et al. 2023, eq. 7; with label_smoothing the conservative loss of Mitchell 2023.
PairLoss sigmoid_loss(double d, double beta, double smoothing) {
  const PairLoss at = logistic_loss(beta * d, smoothing);
  return {at.loss, beta * at.dmargin};
}

// Chowdhury et al. 2024, eq. 11: if the share label_smoothing of the pairs has swapped labels, the expectation of
// this loss is the loss of the correct pairs.
PairLoss robust_loss(double d, double beta, double smoothing) {
  const PairLoss right = sigmoid_loss(d, beta, 0), wrong = sigmoid_loss(-d, beta, 0);
  const double scale = 1 / (1 - 2 * smoothing);
  return {scale * ((1 - smoothing) * right.loss - smoothing * wrong.loss),
          scale * ((1 - smoothing) * right.dmargin + smoothing * wrong.dmargin)};
}

// Zhao et al. 2023 (SLiC).
PairLoss hinge_loss(double d, double beta, double) {
  return beta * d < 1 ? PairLoss{1 - beta * d, -beta} : PairLoss{0, 0};
}

// Azar et al. 2023, eq. 17.
PairLoss ipo_loss(double d, double beta, double) {
  const double miss = d - 1 / (2 * beta);
  return {miss * miss, 2 * miss};
}

// A pair's loss as a function of the difference d of its two log-ratios to the reference.
struct LossType {
  PairLoss (*loss)(double d, double beta, double smoothing);
  bool averages_tokens = false;  // log-ratios are means over a completion's tokens, not sums
  bool smooths = false;          // uses label_smoothing
};

const Registry<LossType>& loss_types() {
  static const Registry<LossType> registry = [] {
    Registry<LossType> r("loss_type");
    r.add("sigmoid", {.loss = sigmoid_loss, .smooths = true});
    r.add("sigmoid_norm", {.loss = sigmoid_loss, .averages_tokens = true, .smooths = true});
    r.add("robust", {.loss = robust_loss, .smooths = true});
    r.add("hinge", {.loss = hinge_loss});
    r.add("ipo", {.loss = ipo_loss, .averages_tokens = true});
    return r;
  }();
  return registry;
}

struct DpoSettings : ObjectiveSettings {
  double beta = 0.1, label_smoothing = 0, ld_alpha = 1;
  std::string loss_type = "sigmoid";

  void fields(Fields& f) override {
    f("beta", beta, "weight of the log-ratios to the reference; a larger beta keeps the policy closer to it");
    f("label_smoothing", label_smoothing,
      "assumed share of pairs with swapped labels (sigmoid, sigmoid_norm, robust); 0 = none");
    f("loss_type", loss_type, "sigmoid | sigmoid_norm (means over a completion's tokens) | robust | hinge | ipo");
    f("ld_alpha", ld_alpha, "weight of a completion's tokens beyond the length of the pair's shorter completion");
    f.require("beta", beta > 0, "beta must be above 0");
    f.require("loss_type", loss_types().contains(loss_type), loss_types().unknown(loss_type));
    f.require("label_smoothing", label_smoothing >= 0 && label_smoothing < 0.5, "label_smoothing must be in [0, 0.5)");
    f.require("label_smoothing", label_smoothing == 0 || loss_types().at(loss_type).smooths,
              "loss_type " + loss_type + " has no label_smoothing: set it to 0");
    f.require("ld_alpha", ld_alpha >= 0 && ld_alpha <= 1, "ld_alpha must be in [0, 1]");
  }
  std::unique_ptr<Objective> make(const RunFacts&) const override;
};

// Direct preference optimization (Rafailov et al. 2023) over pairs: chosen, then rejected.
class Dpo : public Objective {
 public:
  explicit Dpo(const DpoSettings& settings) : settings_(settings) {}

  Needs needs() const override {
    return {.columns = {columns::reference_logp},
            .optional = {columns::source},
            .entropy = true,
            .token_accuracy = true,
            .unit = LossUnit::pair,
            .data = TrainingData::pairs};
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const LossType& type = loss_types().at(settings_.loss_type);
    double sum = 0;
    for (size_t s = 0; s + 1 < batch.num_sequences(); s += 2) {
      const TokenWeights weights{
          .first_tokens = std::min(sum_completion(batch, s).tokens, sum_completion(batch, s + 1).tokens),
          .tail = settings_.ld_alpha};
      const SequenceSums chosen = sum_completion(batch, s, weights), rejected = sum_completion(batch, s + 1, weights);
      const double chosen_weight = type.averages_tokens ? chosen.mean_weight() : 1;
      const double rejected_weight = type.averages_tokens ? rejected.mean_weight() : 1;
      const PairLoss pair = type.loss(chosen.log_ratio * chosen_weight - rejected.log_ratio * rejected_weight,
                                      settings_.beta, settings_.label_smoothing);
      sum += pair.loss;
      add_sequence_gradient(batch, grad, s, pair.dmargin * chosen_weight * batch.scale, weights);
      add_sequence_gradient(batch, grad, s + 1, -pair.dmargin * rejected_weight * batch.scale, weights);
      add_pair_rewards(metrics, batch,
                       {.chosen_sequence = s,
                        .chosen = settings_.beta * chosen.log_ratio * chosen_weight,
                        .rejected = settings_.beta * rejected.log_ratio * rejected_weight,
                        .loss = pair.loss});
      metrics.add("logps/chosen", chosen.logp * chosen_weight, 1);
      metrics.add("logps/rejected", rejected.logp * rejected_weight, 1);
    }
    add_entropy(metrics, batch);
    return sum * batch.scale;
  }

 private:
  const DpoSettings settings_;
};

std::unique_ptr<Objective> DpoSettings::make(const RunFacts&) const { return std::make_unique<Dpo>(*this); }

[[maybe_unused]] const bool added = add_objective<DpoSettings>("dpo");

}  // namespace
}  // namespace hone
