#pragma once
// Completions for training from the workers of a run (rollout/remote).
#include "posttrain/rl/replica_backend.h"
#include "posttrain/rl/rollout_queue.h"
#include "train/stage.h"

namespace hone {

class WorkerPool;

// A source of completions from the workers of stage.rollout. ahead: the learner's thread stores each version in the
// queue before the thread of the worker pool takes it. `stage` and `weights` must outlive the source.
RolloutSource worker_source(StageContext& stage, WeightQueue& weights, bool ahead);

// Workers that serve another model than the stage's, whose weights never change. workers: their addresses; the other
// settings are those of stage.rollout. part: names the model in the id of the run, by which workers tell runs apart.
// `stage` must outlive the pool. The model is copied.
std::unique_ptr<WorkerPool> make_frozen_pool(StageContext& stage, const std::vector<std::string>& workers, Model& model,
                                             const std::string& part);

}  // namespace hone
