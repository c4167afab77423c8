#pragma once
#include "posttrain/rollouts.h"
#include "posttrain/run.h"
#include "posttrain/weight_queue.h"

namespace hone {

// Replies from the workers that the recipe names. ahead: weights are kept by the learner's thread, before the pool's asks for them. Both outlive what
// it makes.
RolloutSource worker_source(Run& run, WeightQueue& weights, bool ahead);

}  // namespace hone
