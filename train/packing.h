#pragma once
// A step's samples as the batches that run at once.
#include <cstdint>
#include <span>
#include <vector>

#include "data/sample.h"

namespace hone {

// Samples [begin, end) of a step.
struct MicroBatch {
  size_t begin = 0, end = 0;
};
// Cuts samples, in order, into runs of at most max_tokens tokens that never part the `unit` neighbours (1, or 2 for
// pairs) that belong together. out is written. A sample (or pair) of more than max_tokens tokens is a micro-batch of
// its own: its length is the data's, and must not end a run.
void make_micro_batches(std::span<const Sample* const> samples, size_t unit, int64_t max_tokens,
                        std::vector<MicroBatch>& out);

}  // namespace hone
