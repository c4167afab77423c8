#pragma once
// run.json: what a resumed run must know beyond its checkpoints, and the recipe that the run started with.
#include <filesystem>

#include "core/io/json.h"
#include "run/recipe/recipe.h"

namespace hone {

struct RunState {
  int64_t stages_done = 0;
  bool evaluated = false;  // the model, before the first training stage
  Json initial = JsonArray{}, stages = JsonArray{}, log = JsonObject{{"metrics_bytes", 0}, {"samples_bytes", 0}};
  Json inputs = JsonObject{};  // digests of the inputs (run/input_digests.h); empty in folders of older versions
  Json about = JsonObject{};   // {started, command, version, build, device}, and `resumed`: a list of the same
  Json recipe;                 // the resolved recipe that made the folder's contents; null in folders of older versions

  // A stage is done, or the first training stage has begun.
  bool has_results() const;
  // Writes run.json with this recipe.
  void save(const std::filesystem::path& folder, const Recipe& recipe);
  // Reads run.json. An Error names the member that does not fit the format or the recipe's stages.
  static RunState load(const std::filesystem::path& folder, const Recipe& recipe);
};

// Compares the recipe of a resumed run with the one that made the folder's contents. An Error names a changed key that
// decides what the run already holds. Other changes are allowed and logged (docs/howto/resume-a-run.md lists both).
void check_same_recipe(const RunState& state, const std::filesystem::path& folder, const Recipe& recipe);

// The recipe of a run folder with overrides. Keys that choose a kind (kind, objective, optimizer, reward.kind) decide
// which other keys there are, so they are compared with those of the run before the recipe is read.
Recipe read_run_recipe(const std::filesystem::path& folder, std::span<const std::string> overrides);

}  // namespace hone
