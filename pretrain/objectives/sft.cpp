#include "core/model/objective.h"

namespace hone {
namespace {

// Mean negative log-likelihood of the masked tokens: supervised fine-tuning; with a mask of ones, pretraining.
class Sft : public Objective {
 public:
  Needs needs() const override { return {.per = Per::token, .linear = true}; }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    double sum = 0, tokens = 0;
    for (size_t t = 0; t < batch.mask.size(); ++t) {
      const double mask = batch.mask[t];
      if (mask == 0) continue;
      sum -= mask * batch.logp[t];
      tokens += mask;
      grad.logp[t] = static_cast<float>(-mask * batch.scale);
    }
    metrics.add("loss", sum, tokens);
    return sum * batch.scale;
  }
};

[[maybe_unused]] const bool added = objectives().add("sft", [] { return std::unique_ptr<Objective>(new Sft); });

}  // namespace
}  // namespace hone
