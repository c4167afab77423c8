#pragma once
#include "posttrain/rl/rollouts.h"
#include "posttrain/rl/weight_queue.h"
#include "run/run.h"

namespace hone {

// Replies from the workers that the recipe names. ahead: weights are kept by the learner's thread, before the pool's
// asks for them. Both outlive what it makes.
RolloutSource worker_source(Run& run, WeightQueue& weights, bool ahead);

}  // namespace hone
