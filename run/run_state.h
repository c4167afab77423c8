#pragma once
// run.json: what a resumed run must know beyond its checkpoints, and the recipe that the run started with.
#include <filesystem>

#include "core/io/json.h"
#include "run/recipe.h"

namespace hone {

struct RunState {
  int64_t stages_done = 0;
  bool evaluated = false;  // the model, before the first training stage
  Json initial = JsonArray{}, stages = JsonArray{}, log = JsonObject{{"metrics_bytes", 0}, {"samples_bytes", 0}};
  Json recipe;  // the resolved recipe that made the folder's contents; null in run folders of old versions

  // Writes run.json with this recipe.
  void save(const std::filesystem::path& folder, const Recipe& recipe);
  // Reads run.json. An Error names the member that does not fit the format or the recipe's stages.
  static RunState load(const std::filesystem::path& folder, const Recipe& recipe);
};

// Compares the recipe of a resumed run with the one that made the folder's contents. An Error names a changed key that
// decides what the run already holds. Other changes are allowed and logged (docs/reference/recipes.md lists both).
void check_same_recipe(const RunState& state, const std::filesystem::path& folder, const Recipe& recipe);

}  // namespace hone
