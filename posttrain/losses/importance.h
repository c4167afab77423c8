#pragma once
// Importance correction of completions that are stale or were sampled with other arithmetic: the probability of their
// tokens under the learner divided by that under the sampler.
#include <string>
#include <vector>

#include "train/objective.h"

namespace hone {

// The weight exp(old_logp - behavior_logp) of a token, or of a sequence (the product over its masked tokens), within
// bounds: truncate clamps a weight to [clip_min, clip_max] (Yao et al. 2025), mask sets a weight outside to 0. Policy
// terms are multiplied by it; it has no gradient. Keys are TRL's without "vllm_".
struct ImportanceCorrection {
  std::string mode = "auto";  // auto: token_truncate if completions are off policy, else none
  double clip_max = 3, clip_min = 0;

  void fields(Fields& f);
  // Replaces auto by what it means for completions that are off policy, or not.
  void resolve(bool off_policy);
  // False for none, and for an auto that is not resolved.
  bool on() const { return mode != "none" && mode != "auto"; }

  // The weights of sequence s, one for each of its tokens; 0 where the mask is 0. Needs old_logp and behavior_logp.
  // Adds TRL's sampling/importance_sampling_ratio/{min,mean,max}, over tokens or sequences.
  std::vector<double> weights(const TokenBatch& batch, size_t s, MetricSums& metrics) const;
};

}  // namespace hone
