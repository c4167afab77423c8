#pragma once
// Models of other folders that a stage computes with: the teacher of a distillation, and local judges of its rewards.
// Neither is trained, and neither is divided among ranks.
#include <cstdint>

#include "run/dry_run.h"

namespace hone {

struct FrozenModelBytes {
  int64_t teacher = 0;  // weights, and the scratch memory of its passes
  int64_t judges = 0;   // on the learner's device: weights, KV caches, buffers and scratch memory of their engines
};

// learner: the dry run's context, after the stage's model was made. A folder that an earlier stage writes is not there
// yet; its model counts as large as the stage's.
FrozenModelBytes measure_frozen_models(Context& learner, const Recipe& recipe, const PlannedStage& planned,
                                       Model& model);

}  // namespace hone
