#pragma once
// Completions for training from the workers of a run (rollout/remote).
#include "posttrain/rl/replica_backend.h"
#include "posttrain/rl/rollout_queue.h"
#include "train/stage.h"

namespace hone {

// A source of completions from the workers of stage.rollout. ahead: the learner's thread stores each version in the
// queue before the thread of the worker pool takes it. `stage` and `weights` must outlive the source.
RolloutSource worker_source(StageContext& stage, WeightQueue& weights, bool ahead);

}  // namespace hone
