#pragma once
// Keys of a recipe that change nothing because of its other keys. They are errors of a new run, not of a run that began
// with them in an older version.
#include <string>
#include <utility>
#include <vector>

#include "core/config/problems.h"
#include "run/recipe/recipe.h"

namespace hone {

// Those that the recipe alone shows: the shape of a model that a file gives, adapters without a rank, the decay of
// schedules that have none.
void check_unused_keys(const Recipe& recipe, const Problems& problems);

// Keys of random weights that change nothing in their family, each with a message: ("model.rope_theta", "...").
// model: that of source.make_config(). Empty with model.path or model.config.
std::vector<std::pair<std::string, std::string>> unread_keys(const ModelSource& source, const Model& model);

}  // namespace hone
