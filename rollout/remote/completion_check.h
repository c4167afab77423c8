#pragma once
// What a learner believes of replies that a worker wrote: a reply that the engine could not have written ends the
// session with that worker.
#include <span>

#include "rollout/request_check.h"

namespace hone {

// The policy versions that may have drawn a token.
struct VersionRange {
  int64_t first = 0, last = 0;
};

// Columns within their bounds: ids of the vocabulary, log-probs that are finite and not above 0, versions that were
// asked for. An Error says what was claimed. Columns of one reply have the same length (WorkerPollResult::parse).
void check_columns(const CompletionOutput& reply, const GenerationRequest& request, int64_t vocab_size,
                   const VersionRange& versions);
// And an end that follows from its ids: "length" where it is as long as it may be, "stop" where its last id or its text
// ends it.
void check_end(const CompletionOutput& reply, const GenerationRequest& request, const RequestLimits& limits);

}  // namespace hone
