#pragma once
// Checks of what a stage's optimizer needs from other parts of the recipe: the names of parameter groups, and the state
// that optimizer_from = "previous" goes on with.
#include "core/config/problems.h"
#include "run/recipe/recipe.h"

namespace hone {

// problems: of the recipe. model: without weights; null: it has a problem of its own. stages_done: stages that are not
// checked.
void check_optimizers(const Recipe& recipe, Model* model, const Problems& problems, int64_t stages_done);

}  // namespace hone
