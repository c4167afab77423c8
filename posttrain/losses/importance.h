#pragma once
// Importance correction: rollouts that are stale, or sampled with other arithmetic, are weighed by how likely the
// learner finds them.
#include <string>
#include <vector>

#include "train/objective.h"

namespace hone {

// The weight exp(old_logp - behavior_logp) of a token, or of a whole sequence (the product over its masked tokens),
// bounded: truncate moves a weight into [clip_min, clip_max] (Yao et al. 2025), mask makes one outside it 0. Policy
// terms are multiplied by it; it has no gradient. Keys are TRL's without their "vllm_".
struct ImportanceCorrection {
  std::string mode = "auto";  // auto: token_truncate if completions are off policy, else none
  double clip_max = 3, clip_min = 0;

  void fields(Fields& f);
  // Replaces auto by what it means for completions that are off policy, or not.
  void resolve(bool off_policy);
  // False for none, and for an auto that is not resolved.
  bool on() const { return mode != "none" && mode != "auto"; }

  // Of sequence s, an entry for each of its tokens; those that are masked out get 0. Both columns must be there. Adds
  // TRL's sampling/importance_sampling_ratio/{min,mean,max}, over tokens or sequences.
  std::vector<double> weights(const TokenBatch& batch, size_t s, MetricSums& metrics) const;
};

}  // namespace hone
