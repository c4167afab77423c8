#pragma once
// What each rank of a layout does in a step of a stage: its micro-batches, and the bytes that it exchanges. The plan of
// a step comes from the trainer's function, the bytes from dry runs of the trainer with a counting group.
#include <vector>

#include "core/io/json.h"
#include "run/plan/dry_run.h"

namespace hone {

struct RankWork {
  int64_t micro_batches = 0, tokens = 0;
  ExchangeCounts exchanged;
  int64_t sent() const;
  int64_t received() const;
};

// Of a step: all its optimizer updates, on the longest samples.
struct StepWork {
  int64_t micro_batches = 0, rounds = 0;
  int64_t largest_micro_batch = 0;  // tokens
  // The sum over the rounds of the largest micro-batch of each: a round ends with its slowest rank.
  int64_t tokens_in_turn = 0;
  std::vector<RankWork> ranks;
};

// planned: of this recipe.
StepWork plan_work(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout);

}  // namespace hone
