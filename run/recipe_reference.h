#pragma once
#include <string>

namespace hone {

// docs/reference/recipes.md: every key of a recipe, of every stage, objective, optimizer, reward, generator and task,
// made from the fields themselves.
std::string recipe_reference();

}  // namespace hone
