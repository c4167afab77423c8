// The objective "kto" (Ethayarajh et al. 2024), for single completions, each desirable or not.
#include <algorithm>

#include "data/source_column.h"
#include "posttrain/losses/pair_loss.h"

namespace hone {
namespace {

const Column label = register_column(
    "label", {.doc = "1: desirable, -1: undesirable, 0: no label (KTO)", .per_sequence = true, .alias = "advantages"});
const Column kl_estimate = register_column(
    "kl_estimate",
    {.doc = "estimate of KL(policy || reference), one for the step (KTO)", .per_sequence = true, .alias = "old_value"});

struct KtoSettings : ObjectiveSettings {
  double beta = 0.1, desirable_weight = 1, undesirable_weight = 1;

  void fields(Fields& f) override {
    f("beta", beta, "weight of the log-ratios to the reference; a larger beta keeps the policy closer to it");
    f("desirable_weight", desirable_weight, "weight of desirable completions");
    f("undesirable_weight", undesirable_weight, "weight of undesirable completions");
    f.require("beta", beta > 0, "beta must be above 0");
    f.require("desirable_weight", desirable_weight >= 0, "desirable_weight must not be negative");
    f.require("undesirable_weight", undesirable_weight >= 0, "undesirable_weight must not be negative");
    f.require("desirable_weight", desirable_weight > 0 || undesirable_weight > 0,
              "desirable_weight and undesirable_weight are both 0: no completion would be trained on; set one of them "
              "above 0");
  }
  std::unique_ptr<Objective> make(const RunFacts&) const override;
};

// Kahneman-Tversky optimization (Ethayarajh et al. 2024, eq. 8) on single completions, each desirable or not. A group
// is a completion, whose reward is above 0 if it is desirable, followed by mismatched completions: those of other
// prompts. The mismatched ones give the step's KL estimate and have no label; they add nothing to the loss.
class Kto : public Objective {
 public:
  explicit Kto(const KtoSettings& settings) : settings_(settings) {}

  Needs needs() const override {
    return {.columns = {columns::reference_logp, label},
            .optional = {columns::mismatched_logp, kl_estimate, columns::source},
            .unit = LossUnit::sequence,
            .data = TrainingData::unpaired};
  }

  void compute_advantages(std::span<Group> groups, MetricSums& metrics) override {
    double sum = 0, count = 0;
    for (const Group& group : groups)
      for (size_t i = 1; i < group.samples.size(); ++i) sum += log_ratio_of(group.samples[i]), ++count;
    const double kl = count > 0 ? std::max(sum / count, 0.0) : 0;
    for (Group& group : groups)
      for (size_t i = 0; i < group.samples.size(); ++i) {
        Sample& sample = group.samples[i];
        const float desirable = sample.reward > 0 ? 1 : -1;
        sample.columns.set(label, {i > 0 ? 0 : desirable});
        sample.columns.set(kl_estimate, {static_cast<float>(kl)});
      }
    metrics.add("kl", kl, 1);
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const std::span<const float> labels = batch[label], estimates = batch.find(kl_estimate),
                                 sources = batch.find(columns::source);
    double sum = 0;
    for (size_t s = 0; s < batch.num_sequences(); ++s) {
      const SequenceSums completion = sum_completion(batch, s);
      if (completion.tokens == 0 || labels[s] == 0) continue;
      const bool desirable = labels[s] > 0;
      const double kl = estimates.empty() ? 0 : estimates[s];
      const double sign = desirable ? 1 : -1,
                   weight = desirable ? settings_.desirable_weight : settings_.undesirable_weight;
      const double z = sign * settings_.beta * (completion.log_ratio - kl);
      const double loss = weight * sigmoid(-z), reward = settings_.beta * completion.log_ratio;
      sum += loss;
      add_sequence_gradient(batch, grad, s, -weight * sign * settings_.beta * sigmoid(z) * sigmoid(-z) * batch.scale);
      const char* name = desirable ? "rewards/chosen" : "rewards/rejected";
      metrics.add(name, reward, 1);
      metrics.add(desirable ? "logps/chosen" : "logps/rejected", completion.logp, 1);
      if (sources.empty()) continue;
      metrics.add(source_metric(name, sources[s]), reward, 1);
      metrics.add(source_metric("loss", sources[s]), loss, 1);
    }
    return sum * batch.scale;
  }

 private:
  // The log-ratio of all masked tokens under the policy before the step.
  static double log_ratio_of(const Sample& sample) {
    const Columns& own = sample.columns;
    const std::span<const float> mask = own.find(columns::mask), logp = policy_logp(own),
                                 reference_logp = own.find(columns::reference_logp);
    HONE_CHECK(logp.size() == sample.tokens.size() && reference_logp.size() == sample.tokens.size(),
               "kto: the KL estimate needs the log-probs of the policy and of the reference");
    double sum = 0;
    for (size_t t = 0; t < mask.size(); ++t)
      if (mask[t] != 0) sum += static_cast<double>(logp[t]) - reference_logp[t];
    return sum;
  }

  // The column mismatched_logp; for sampled completions and in older files old_logp or behavior_logp.
  static std::span<const float> policy_logp(const Columns& own) {
    for (const Column column : {columns::mismatched_logp, columns::old_logp})
      if (own.has(column)) return own[column];
    return own.find(columns::behavior_logp);
  }

  const KtoSettings settings_;
};

std::unique_ptr<Objective> KtoSettings::make(const RunFacts&) const { return std::make_unique<Kto>(*this); }

[[maybe_unused]] const bool added = add_objective<KtoSettings>("kto");

}  // namespace
}  // namespace hone
