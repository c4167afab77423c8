#pragma once
// Keys of [model] that a family does not read.
#include <string>
#include <utility>
#include <vector>

#include "run/recipe/recipe.h"

namespace hone {

// Keys of random weights that change nothing in their family, each with a message: ("model.rope_theta", "...").
// model: that of source.make_config(). Empty with model.path or model.config, where ModelSource::fields() refuses them.
std::vector<std::pair<std::string, std::string>> unread_keys(const ModelSource& source, const Model& model);

}  // namespace hone
