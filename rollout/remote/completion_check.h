#pragma once
// Checks of completions that a worker sends. A completion that the engine could not have generated ends the session
// with that worker: the learner must not train on it.
#include <span>

#include "rollout/request_check.h"

namespace hone {

// The policy versions that may have sampled a token.
struct VersionRange {
  int64_t first = 0, last = 0;
};

// Checks bounds: ids of the vocabulary, finite log-probs not above 0, versions within the range. Throws an Error that
// says what was claimed. The columns already have one length (WorkerPollResult::parse).
void check_columns(const CompletionOutput& completion, const GenerationRequest& request, int64_t vocab_size,
                   const VersionRange& versions);
// Checks that finish_reason follows from the ids: "length" for a completion of maximum length, "stop" for one whose
// last id or text ends it.
void check_end(const CompletionOutput& completion, const GenerationRequest& request, const RequestLimits& limits);

}  // namespace hone
