#pragma once
// A run: one execution of a recipe, and its folder.
//
//   recipe.toml        the resolved recipe
//   run.json           completed stages, their reports, the length of the logs then, the recipe (run/run_state.h)
//   lock               held while a process works on the run (core/io/folder_lock.h)
//   metrics.jsonl      a row a step ("step" counts across stages, "stage" is the stage's place)
//   samples.jsonl      some of the sampled completions
//   tensorboard/       event files
//   rollouts/step-N.jsonl.gz   all completions of a step (stage.keep_rollouts)
//   tracker.json, tracker.log   what the tracker has received, and its output (run/recipe/tracker.h)
//   tokenizer/         of a tokenizer stage
//   checkpoints/STAGE/step-N   a model folder, or an adapter's (model.lora); checkpoints/STAGE/merged: model.lora.merge
//   report.md, report.html, report.json, *.svg
//
// A run that was killed resumes from its newest checkpoint with the same bits. Log rows past the checkpoint are cut.
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "run/recipe/recipe.h"

namespace hone {

// Receives the run folder before the first stage.
using FolderObserver = std::function<void(const std::filesystem::path& folder)>;

// Runs a recipe in a new folder recipe.runs/recipe.name (-2, -3, ... if it exists). Returns the folder.
std::filesystem::path run_recipe(const Recipe& recipe, const FolderObserver& observer = nullptr);
// Continues the run of a folder, with overrides of its recipe (run/run_state.h: which may change). Returns the folder.
std::filesystem::path resume_run(const std::filesystem::path& folder, std::span<const std::string> overrides);

}  // namespace hone
