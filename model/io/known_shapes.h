#pragma once
// Shapes of well-known models by name, for random weights: benchmarks, plans and trials without the weights.
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

// "qwen2.5-7b" and others, sorted.
std::vector<std::string> known_shapes();
bool is_known_shape(const std::string& name);
// Its config.json. Throws Error for an unknown name.
Json known_shape(const std::string& name);

}  // namespace hone
