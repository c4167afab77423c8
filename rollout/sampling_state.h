#pragma once
// SamplingState: everything but the logits that the next sampled token of a sequence depends on.
#include <vector>

#include "kernels/sampling/row_params.h"
#include "rollout/sequence.h"

namespace hone {

struct SamplingState {
  RowSamplingParams sample;
  RowPenalties penalties;
  std::vector<LogitAdjustment> adjustments;  // by id
  int64_t top_logprobs = 0;
  // True if logits are adjusted now, or may be once this token is sampled.
  bool adjusts_logits() const { return penalties.counts != 0 || !adjustments.empty(); }
};

// The RNG draw is a function of the request's seed and id, the completion index and the position.
RowSamplingParams sample_params(const Sequence& sequence, int64_t completion_index);
SamplingState sampling_state(const Sequence& sequence, int64_t completion_index);

// The state after `state` if it samples `id`.
SamplingState next_sampling_state(SamplingState state, int32_t id);

// Appends a token to the sequence, and counts it if the request has penalties.
void add_token(Sequence& sequence, int32_t id);

}  // namespace hone
