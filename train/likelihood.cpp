#include <algorithm>
#include <cmath>

#include "train/objective.h"

namespace hone {
namespace {

// How a token's negative log-likelihood counts: as it is, or times the token's own probability, which is taken to be a
// constant (dynamic fine-tuning, Wu et al. 2025).
double nll_weight(double) { return 1; }
double dft_weight(double logp) { return std::exp(std::min(logp, 0.0)); }

using Weight = double (*)(double logp);
const Registry<Weight>& loss_types() {
  static const Registry<Weight> registry = [] {
    Registry<Weight> r("loss_type");
    r.add("nll", nll_weight);
    r.add("dft", dft_weight);
    return r;
  }();
  return registry;
}

// Mean negative log-likelihood of the masked tokens: supervised fine-tuning; with a mask of ones, pretraining.
class Sft : public Objective {
 public:
  void fields(Fields& f) override {
    f("loss_type", loss_type_,
      "nll | dft: a token's loss is weighted by its probability, which is no part of the gradient");
    f.require("loss_type", loss_types().contains(loss_type_), loss_types().unknown(loss_type_));
  }
  Needs needs() const override {
    return {.per = LossUnit::token, .loss_linear_in_logp = loss_type_ == "nll", .data = TrainingData::completions};
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const Weight weight_of = loss_types().at(loss_type_);
    double sum = 0, tokens = 0;
    for (size_t t = 0; t < batch.mask.size(); ++t) {
      const double mask = batch.mask[t];
      if (mask == 0) continue;
      const double weight = mask * weight_of(batch.logp[t]);
      sum -= weight * batch.logp[t];
      tokens += mask;
      grad.logp[t] = static_cast<float>(-weight * batch.scale);
    }
    metrics.add("loss", sum, tokens);
    return sum * batch.scale;
  }

 private:
  std::string loss_type_ = "nll";
};

[[maybe_unused]] const bool added = objectives().add("sft", [] { return std::unique_ptr<Objective>(new Sft); });

}  // namespace
}  // namespace hone
