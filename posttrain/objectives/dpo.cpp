#include <cmath>

#include "core/model/objective.h"

namespace hone {
namespace {

// A pair's loss as a function of the difference d of its two log-ratios to the reference, with its derivative.
struct PairLoss {
  double loss, slope;
};

double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

// Rafailov et al. 2023, eq. 7, with the label smoothing of Mitchell 2023.
PairLoss sigmoid_loss(double d, double beta, double smoothing) {
  const double z = beta * d;
  return {(1 - smoothing) * softplus(-z) + smoothing * softplus(z), beta * (smoothing * sigmoid(z) - (1 - smoothing) * sigmoid(-z))};
}

// Zhao et al. 2023 (SLiC).
PairLoss hinge_loss(double d, double beta, double) { return beta * d < 1 ? PairLoss{1 - beta * d, -beta} : PairLoss{0, 0}; }

// Azar et al. 2023, eq. 17; d is of log-probs averaged over a reply's tokens.
PairLoss ipo_loss(double d, double beta, double) {
  const double miss = d - 1 / (2 * beta);
  return {miss * miss, 2 * miss};
}

struct LossType {
  PairLoss (*loss)(double d, double beta, double smoothing);
  bool averages_tokens;
};

const Registry<LossType>& loss_types() {
  static const Registry<LossType> registry = [] {
    Registry<LossType> r("loss_type");
    r.add("sigmoid", {sigmoid_loss, false});
    r.add("hinge", {hinge_loss, false});
    r.add("ipo", {ipo_loss, true});
    return r;
  }();
  return registry;
}

// One reply of a pair: its log-prob and its log-ratio to the reference.
struct Reply {
  double logp = 0, log_ratio = 0, tokens = 0;
};

Reply sum_reply(const TokenBatch& batch, size_t s) {
  Reply out;
  for (auto t = static_cast<size_t>(batch.offsets[s]); t < static_cast<size_t>(batch.offsets[s + 1]); ++t) {
    const double mask = batch.mask[t];
    if (mask == 0) continue;
    out.logp += mask * batch.logp[t];
    out.log_ratio += mask * (static_cast<double>(batch.logp[t]) - batch.reference_logp[t]);
    out.tokens += mask;
  }
  return out;
}

// Direct preference optimisation over pairs: chosen, then rejected.
class Dpo : public Objective {
 public:
  void fields(Fields& f) override {
    f("beta", beta_, "how strongly the policy is held to the reference");
    f("label_smoothing", label_smoothing_, "share of pairs whose preference is taken to be the wrong way round (sigmoid)");
    f("loss_type", loss_type_, "sigmoid | hinge | ipo");
    f.require("beta", beta_ > 0, "beta must be above 0");
    f.require("label_smoothing", label_smoothing_ >= 0 && label_smoothing_ < 0.5, "label_smoothing must be in [0, 0.5)");
    f.require("loss_type", loss_types().contains(loss_type_), loss_types().unknown(loss_type_));
  }
  Needs needs() const override { return {.reference = true, .per = Per::pair}; }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const LossType& type = loss_types().at(loss_type_);
    double sum = 0;
    for (size_t s = 0; s + 1 < batch.num_sequences(); s += 2) {
      const Reply chosen = sum_reply(batch, s), rejected = sum_reply(batch, s + 1);
      const double chosen_weight = weight(type, chosen), rejected_weight = weight(type, rejected);
      const PairLoss pair = type.loss(chosen.log_ratio * chosen_weight - rejected.log_ratio * rejected_weight, beta_, label_smoothing_);
      sum += pair.loss;
      spread(batch, grad, s, pair.slope * chosen_weight * batch.scale);
      spread(batch, grad, s + 1, -pair.slope * rejected_weight * batch.scale);
      const double chosen_reward = beta_ * chosen.log_ratio * chosen_weight, rejected_reward = beta_ * rejected.log_ratio * rejected_weight;
      metrics.add("rewards/chosen", chosen_reward, 1);
      metrics.add("rewards/rejected", rejected_reward, 1);
      metrics.add("rewards/accuracies", chosen_reward > rejected_reward, 1);
      metrics.add("rewards/margins", chosen_reward - rejected_reward, 1);
      metrics.add("logps/chosen", chosen.logp * chosen_weight, 1);
      metrics.add("logps/rejected", rejected.logp * rejected_weight, 1);
    }
    return sum * batch.scale;
  }

 private:
  static double weight(const LossType& type, const Reply& reply) { return type.averages_tokens && reply.tokens > 0 ? 1 / reply.tokens : 1; }
  static void spread(const TokenBatch& batch, TokenGrad grad, size_t s, double slope) {
    for (auto t = static_cast<size_t>(batch.offsets[s]); t < static_cast<size_t>(batch.offsets[s + 1]); ++t)
      grad.logp[t] = static_cast<float>(slope * batch.mask[t]);
  }

  double beta_ = 0.1, label_smoothing_ = 0;
  std::string loss_type_ = "sigmoid";
};

[[maybe_unused]] const bool added = objectives().add("dpo", [] { return std::unique_ptr<Objective>(new Dpo); });

}  // namespace
}  // namespace hone
