#pragma once
// Rejection sampling of off-policy tokens and sequences: those whose learner has moved too far from the sampler are
// taken out of the loss. Names and formulas are those of verl's rollout correction (rollout_rs).
#include <span>
#include <string>
#include <vector>

#include "train/objective.h"

namespace hone {

// With d = old_logp - behavior_logp of a token, within +-20, the divergences are k1 = -d, k2 = d^2 / 2 and
// k3 = exp(d) - 1 - d. A criterion names one of them and what it is taken over: a token, or the masked tokens of a
// sequence as their sum, mean or maximum (token_k1, seq_mean_k1, ...). exp(-seq_mean_k1) is the geometric mean of the
// sequence's importance ratios, exp(-seq_sum_k1) their product. A token or a sequence outside a bound is rejected: its
// mask becomes 0, so it counts neither in the loss nor in what the loss is averaged over. Several criteria reject what
// any of them rejects.
struct RejectionSampling {
  std::vector<std::string> rollout_rs;            // criteria; empty: none
  std::vector<std::string> rollout_rs_threshold;  // their bounds: one for all, or one each

  void fields(Fields& f);
  bool on() const { return !rollout_rs.empty(); }
  // Needs old_logp and behavior_logp of the samples. Adds verl's rollout_corr/rollout_rs_{masked_fraction,
  // seq_masked_fraction} and the same with _CRITERION, and rollout_corr/rollout_rs_CRITERION_{mean, min, max}.
  void reject(std::span<Group> groups, MetricSums& metrics) const;
};

}  // namespace hone
