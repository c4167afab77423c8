#pragma once
// The step record: what ranks tell each other once at the end of a step. All of them compare, stop and save alike.
#include <string>
#include <vector>

#include "core/comm/ranks.h"
#include "train/trainer.h"

namespace hone {

struct StepRecord {
  int64_t step = 0;  // counted from 1 within the stage
  // Must be equal on all ranks.
  double loss = 0, grad_norm = 0;
  int64_t num_tokens = 0;
  uint64_t samples_digest = 0, weights_digest = 0;
  std::string loader = {};  // the state of the stage's data order
  // A rank's own.
  double passes = 0;             // seconds of its device in forward and backward passes
  bool interrupted = false;      // a signal asked the run to stop
  bool save_due = false;         // by rank 0's clock
  bool changed_weights = false;  // an update has begun since the record before
  std::string error = {};        // empty: the step is complete
};

// What all ranks do after a step.
struct StepDecision {
  bool stop = false, save = false;
  // Not empty: the step failed. Its message is that of rank 0 if every rank failed, and names the rank otherwise.
  std::string error = {};
  // The step failed everywhere, and no rank has begun to change its weights: the state is that of the step before.
  bool is_consistent = true;
  std::vector<double> passes = {};  // of all ranks
};

// Waits for the records of all ranks. An AgreedError names the first difference of the values that must be equal.
StepDecision exchange_records(const Ranks& ranks, const StepRecord& own);

}  // namespace hone
