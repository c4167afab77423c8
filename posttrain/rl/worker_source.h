#pragma once
// Completions for training from the workers of a run (rollout/remote).
#include <filesystem>
#include <memory>

#include "posttrain/rl/replica_backend.h"
#include "posttrain/rl/rollout_queue.h"
#include "rollout/remote/config.h"
#include "train/stage.h"

namespace hone {

// A source of completions from the workers of stage.rollout. ahead: the learner's thread stores each version in the
// queue before the thread of the worker pool takes it. `stage` and `weights` must outlive the source.
RolloutSource worker_source(StageContext& stage, WeightQueue& weights, bool ahead);

// Completions of a model that does not change, from workers. run: an id; a resumed run has the same. The arguments must
// outlive the backend.
std::unique_ptr<GenerationBackend> worker_backend(Context& context, Model& model, const Tokenizer& tokenizer,
                                                  const EngineConfig& engine, const WorkerPoolConfig& pool,
                                                  const std::filesystem::path& run_folder);

}  // namespace hone
