#include <algorithm>

#include "posttrain/losses/pair_loss.h"

namespace hone {
namespace {

// Kahneman-Tversky optimisation (Ethayarajh et al. 2024, eq. 8) on single replies, each desirable or not. A group is a
// reply, whose reward is above 0 where it is desirable, and after it replies to other prompts, which tell how far the
// policy is from the reference (credit's KL estimate, one for the whole step). loss() sees the replies alone: advantage
// is +1 or -1 (0: no label), old_value the KL estimate.
class Kto : public Objective {
 public:
  void fields(Fields& f) override {
    f("beta", beta_, "how strongly the policy is held to the reference");
    f("desirable_weight", desirable_weight_, "weight of desirable replies");
    f("undesirable_weight", undesirable_weight_, "weight of undesirable replies");
    f.require("beta", beta_ > 0, "beta must be above 0");
    f.require("desirable_weight", desirable_weight_ >= 0, "desirable_weight must not be negative");
    f.require("undesirable_weight", undesirable_weight_ >= 0, "undesirable_weight must not be negative");
    f.require("desirable_weight", desirable_weight_ > 0 || undesirable_weight_ > 0,
              "desirable_weight and undesirable_weight are both 0: nothing would be learned");
  }
  Needs needs() const override { return {.reference = true, .per = LossUnit::sequence, .data = TrainingData::labelled}; }

  void compute_advantages(std::span<Group> groups, MetricSums& metrics) override {
    double sum = 0, count = 0;
    for (const Group& group : groups)
      for (size_t i = 1; i < group.samples.size(); ++i) sum += log_ratio_of(group.samples[i]), ++count;
    const double kl = count > 0 ? std::max(sum / count, 0.0) : 0;
    for (Group& group : groups)
      for (size_t i = 0; i < group.samples.size(); ++i) {
        Sample& sample = group.samples[i];
        sample.advantage.assign(sample.tokens.size(), i > 0 ? 0.0f : sample.reward > 0 ? 1.0f : -1.0f);
        sample.value.assign(sample.tokens.size(), static_cast<float>(kl));
      }
    metrics.add("kl", kl, 1);
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    HONE_CHECK(!batch.advantage.empty() || batch.num_tokens() == 0, "kto: needs labels; they come from rewards");
    double sum = 0;
    for (size_t s = 0; s < batch.num_sequences(); ++s) {
      size_t first = static_cast<size_t>(batch.offsets[s]);
      const auto end = static_cast<size_t>(batch.offsets[s + 1]);
      while (first < end && batch.mask[first] == 0) ++first;
      if (first == end || batch.advantage[first] == 0) continue;
      const bool desirable = batch.advantage[first] > 0;
      const double kl = batch.old_value.empty() ? 0 : batch.old_value[first];
      const SequenceSums reply = sum_completion(batch, s);
      const double sign = desirable ? 1 : -1, weight = desirable ? desirable_weight_ : undesirable_weight_;
      const double z = sign * beta_ * (reply.log_ratio - kl);
      sum += weight * sigmoid(-z);
      add_sequence_gradient(batch, grad, s, -weight * sign * beta_ * sigmoid(z) * sigmoid(-z) * batch.scale);
      metrics.add(desirable ? "rewards/chosen" : "rewards/rejected", beta_ * reply.log_ratio, 1);
      metrics.add(desirable ? "logps/chosen" : "logps/rejected", reply.logp, 1);
    }
    return sum * batch.scale;
  }

 private:
  // Of all masked tokens, under the policy as it was when the step began.
  static double log_ratio_of(const Sample& sample) {
    const std::vector<float>& logp = sample.old_logp.empty() ? sample.behavior_logp : sample.old_logp;
    HONE_CHECK(logp.size() == sample.tokens.size() && sample.reference_logp.size() == sample.tokens.size(),
               "kto: the KL estimate needs the log-probs of the policy and of the reference");
    double sum = 0;
    for (size_t t = 0; t < logp.size(); ++t)
      if (sample.mask[t] != 0) sum += static_cast<double>(logp[t]) - sample.reference_logp[t];
    return sum;
  }

  double beta_ = 0.1, desirable_weight_ = 1, undesirable_weight_ = 1;
};

[[maybe_unused]] const bool added = objectives().add("kto", [] { return std::unique_ptr<Objective>(new Kto); });

}  // namespace
}  // namespace hone
