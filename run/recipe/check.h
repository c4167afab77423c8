#pragma once
// The check of a recipe before a run computes or writes anything.
#include <filesystem>

#include "run/recipe/recipe.h"

namespace hone {

// Throws one Error with everything that would stop the run later: files, first rows and their templates, chat formats,
// rewards and plug-ins, evaluation tasks, models and tokenizers, the folder of the run. Each problem has the place of
// its key. Logs warnings about settings that are rarely intended. `hone run`, `hone run --dry-run` and `hone plan`
// share it.
void check_recipe(const Recipe& recipe);
// The same for the stages of a resumed run that are not done. `start_folder`: the checkpoint that the next stage starts
// from; empty: no stage has handed a model on.
void check_resumed(const Recipe& recipe, const std::filesystem::path& run_folder, int64_t stages_done,
                   const std::filesystem::path& start_folder);

}  // namespace hone
