#pragma once
#include "posttrain/rl/rollout_queue.h"
#include "posttrain/rl/weight_sync.h"
#include "run/run.h"

namespace hone {

// Replies from the workers that the recipe names. ahead: weights are kept by the learner's thread, before the pool's
// asks for them. Both outlive what it makes.
RolloutSource worker_source(Run& run, WeightQueue& weights, bool ahead);

}  // namespace hone
