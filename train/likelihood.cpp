// The objective "sft": the likelihood of given tokens, for supervised fine-tuning and pretraining.
#include <algorithm>
#include <cmath>

#include "data/source_column.h"
#include "train/objective.h"

namespace hone {
namespace {

// Weight of a token's negative log-likelihood: 1, or the token's own probability held constant (dynamic fine-tuning,
// Wu et al. 2025).
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

struct SftSettings : ObjectiveSettings {
  std::string loss_type = "nll";

  void fields(Fields& f) override {
    f("loss_type", loss_type, "nll | dft: a token's loss is weighted by its probability, which has no gradient");
    f.require("loss_type", loss_types().contains(loss_type), loss_types().unknown(loss_type));
  }
  std::unique_ptr<Objective> make(const RunFacts&) const override;
};

// Mean negative log-likelihood of the masked tokens: supervised fine-tuning; with a mask of ones, pretraining.
class Sft : public Objective {
 public:
  explicit Sft(const SftSettings& settings) : settings_(settings) {}

  Needs needs() const override {
    return {.optional = {columns::source},
            .token_accuracy = true,
            .unit = LossUnit::token,
            .loss_linear_in_logp = settings_.loss_type == "nll",
            .data = TrainingData::completions};
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const Weight weight_of = loss_types().at(settings_.loss_type);
    const std::span<const float> logp = batch[columns::logp], mask = batch[columns::mask];
    double sum = 0, tokens = 0;
    for (size_t t = 0; t < mask.size(); ++t) {
      if (mask[t] == 0) continue;
      const double weight = mask[t] * weight_of(logp[t]);
      sum -= weight * logp[t];
      tokens += mask[t];
      grad.logp[t] = static_cast<float>(-weight * batch.scale);
    }
    metrics.add("loss", sum, tokens);
    if (batch.has(columns::source)) add_by_source(batch, metrics);
    return sum * batch.scale;
  }

 private:
  // Adds loss/SOURCE of each source, by its index.
  void add_by_source(const TokenBatch& batch, MetricSums& metrics) const {
    const Weight weight_of = loss_types().at(settings_.loss_type);
    const std::span<const float> logp = batch[columns::logp], mask = batch[columns::mask],
                                 source = batch[columns::source];
    for (size_t s = 0; s < batch.num_sequences(); ++s) {
      double sum = 0, tokens = 0;
      const auto begin = static_cast<size_t>(batch.offsets[s]), end = static_cast<size_t>(batch.offsets[s + 1]);
      for (size_t t = begin; t < end; ++t) {
        if (mask[t] == 0) continue;
        sum -= mask[t] * weight_of(logp[t]) * logp[t];
        tokens += mask[t];
      }
      metrics.add(source_metric("loss", source[s]), sum, tokens);
    }
  }

  const SftSettings settings_;
};

std::unique_ptr<Objective> SftSettings::make(const RunFacts&) const { return std::make_unique<Sft>(*this); }

[[maybe_unused]] const bool added = add_objective<SftSettings>("sft");

}  // namespace
}  // namespace hone
