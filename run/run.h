#pragma once
// A run: a recipe on its way, and its folder.
//
//   recipe.toml        the resolved recipe
//   run.json           stages done, their reports, how long the logs were then, the recipe (run/run_state.h)
//   lock               held while a process works on the run (core/io/folder_lock.h)
//   metrics.jsonl      a row a step ("step" counts across stages, "stage" is the stage's place)
//   samples.jsonl      some of the replies that were sampled
//   tensorboard/       event files
//   tokenizer/         once trained
//   checkpoints/STAGE/step-N   a model folder, or an adapter's (model.lora); checkpoints/STAGE/merged: model.lora.merge
//   report.md, report.json, *.svg
//
// A killed run, resumed, goes on from its newest checkpoint with the same bits: log rows past the checkpoint are cut.
#include <filesystem>
#include <memory>
#include <optional>

#include "core/base/rng.h"
#include "core/text/tokenizer/tokenizer.h"
#include "run/recipe.h"
#include "train/metrics_log.h"

namespace hone {

// One stage's line in the report.
struct StageReport {
  std::string name, kind;
  int64_t steps = 0, tokens = 0;
  int64_t planned_steps =
      0;  // more than `steps` where training stopped early; the next stage's steps are numbered from there
  int64_t final_step = 0;  // whose checkpoint the next stage starts from
  double seconds = 0;
  std::vector<EvalResult> eval;  // after the stage
  Json to_json() const;
};

// What a stage works on and with.
struct Run {
  const Recipe& recipe;
  std::filesystem::path folder;
  Device& device;
  Context& context;
  MetricsLog& log;
  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;

  // Of the stage that is running.
  std::string stage_name;
  int64_t stage_index = 0;
  int64_t first_step = 0;  // optimizer steps of the stages before it
  StageReport report;

  // Ends the run, once everything is saved: an Error that says how to go on. `after` is what was done last; why, if not
  // because a signal asked.
  [[noreturn]] void stop(const std::string& after, const std::string& why = "") const;
  // The model as it was when the stage began, once more.
  std::unique_ptr<Model> load_start_model(bool gradients) const;
  // Of the stage's data order and sampling.
  uint64_t stage_seed() const { return static_cast<uint64_t>(recipe.seed) ^ stream_of(stage_name.c_str()); }
  std::filesystem::path checkpoints() const { return folder / "checkpoints" / stage_name; }
  // Where the stage's model came from: the last training stage's final checkpoint, the recipe's model folder, or
  // nothing (random weights).
  std::filesystem::path start_folder;
};

// Runs a recipe in a new folder recipe.runs/recipe.name (-2, -3, ... when it exists), or goes on with one. Returns the
// folder.
std::filesystem::path run_recipe(const Recipe& recipe);
std::filesystem::path resume_run(const std::filesystem::path& folder, std::span<const std::string> overrides);

}  // namespace hone
