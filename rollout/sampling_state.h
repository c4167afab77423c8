#pragma once
// What a sequence's next draw depends on besides the logits.
#include <vector>

#include "kernels/sampling/logit_processors.h"
#include "kernels/sampling/sample.h"
#include "rollout/sequence.h"

namespace hone {

struct SamplingState {
  RowSamplingParams sample;
  RowPenalties how;                    // the row's logits are changed,
  std::vector<LogitAdjustment> edits;  // and which
  int64_t top_logprobs = 0;
  // Whether logits are changed now, or may be after this draw.
  bool edited() const { return how.counts != 0 || !edits.empty(); }
};

// The request's seed and id, the reply and the position decide the draw.
RowSamplingParams sample_params(const Sequence& sequence, int64_t reply);
SamplingState sampling_state(const Sequence& sequence, int64_t reply);

// The draw after this one, should it draw `id`.
SamplingState next_sampling_state(SamplingState draw, int32_t id);

// One more token of the reply, counted where that changes the next draw.
void add_token(Sequence& sequence, int32_t id);

}  // namespace hone
