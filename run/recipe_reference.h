#pragma once
#include <string>

namespace hone {

// The text of docs/reference/recipes.md: every key of a recipe and of each stage, objective, optimizer, reward,
// generator and task, from their fields().
std::string recipe_reference();

}  // namespace hone
