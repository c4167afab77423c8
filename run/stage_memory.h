#pragma once
// The memory of a stage at its peak, by owner. Dry runs on the meta device take it: a training step over the largest
// micro-batch, a scoring pass, and an engine that generates. They run the code that the stage runs.
#include <vector>

#include "core/io/json.h"
#include "model/flops.h"
#include "run/recipe.h"

namespace hone {

// A stage that trains, and what its largest step is.
struct PlannedStage {
  size_t index = 0;  // in the recipe
  PlannedStep step;
  ModelShape shape;
  int64_t length = 0;    // tokens of the longest sample that the model takes
  bool adapted = false;  // an earlier stage trained adapters, so the reference keeps those
};
// The steps point into the recipe's stages.
std::vector<PlannedStage> planned_stages(const Recipe& recipe);

struct StageMemory {
  Json bytes;        // by owner, and their sum as "total"
  ModelFlops flops;  // of the stage's model, for the longest samples
};

// adapted: as in PlannedStage.
StageMemory measure_stage_memory(const Recipe& recipe, const StageSpec& spec, const PlannedStep& step, bool adapted);

}  // namespace hone
