#include "run/recipe/check.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/base/log.h"
#include "core/io/file.h"
#include "data/prompt.h"
#include "model/io/adapter.h"
#include "model/io/model_folder.h"
#include "rollout/speculative/draft_vocabulary.h"
#include "rollout/speculative/mtp_cache.h"
#include "run/recipe/check_optimizer.h"
#include "run/recipe/start.h"
#include "run/recipe/unused_keys.h"
#include "train/stage.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// What a check knows of the run.
struct RunCheck {
  const Recipe& recipe;
  const Problems problems;
  fs::path run_folder = {};  // of a resumed run
  int64_t stages_done = 0;
  fs::path start_folder = {};  // the checkpoint that the next stage starts from
  std::unique_ptr<Model> model = {};
  std::optional<Tokenizer> tokenizer = {};
  bool tokenizer_is_trained = true;  // false: it has the special tokens of a tokenizer stage, and no merges
  bool tokenizer_failed = false;     // it could not be read, which is one of the problems
};

// The folder does not exist yet: the nearest one above it must be writable.
void check_runs_folder(const std::string& runs) {
  fs::path folder = fs::absolute(expand_path(runs));
  while (!fs::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  HONE_CHECK(fs::is_directory(folder), folder.string(), ": cannot hold run folders: it is a file");
  HONE_CHECK(::access(folder.c_str(), W_OK | X_OK) == 0, folder.string(),
             ": cannot write into the folder: ", std::strerror(errno));
}

// Adapters need trained weights below them. Once a model has adapters, no stage can train its weights.
void check_adapters(const RunCheck& of) {
  const Recipe& recipe = of.recipe;
  const LoraConfig lora = start_lora(recipe);
  if (lora.r == 0) return;
  start_model(recipe)->add_lora(lora);
  bool weights = !recipe.model.path.empty(), adapters = starts_from_adapter(recipe), any_adapts = false;
  for (const StageSpec& spec : recipe.stage) {
    if (!spec.stage->trains()) continue;
    const bool adapts = spec.stage->trains_adapters();
    HONE_CHECK(!adapts || weights, spec.name,
               ": model.lora adapts weights that were trained; give model.path, or a pretrain stage before this one");
    HONE_CHECK(adapts || !adapters, spec.name,
               ": the stage trains whole weights, and the model has adapters by then; merge them first (hone export)");
    if (spec.stage->hands_model_on()) weights = true, adapters = adapts;
    any_adapts = any_adapts || adapts;
  }
  if (!any_adapts && !starts_from_adapter(recipe) && of.run_folder.empty())
    of.problems.add("model.lora.r",
                    "model.lora has no effect: no stage of the recipe trains adapters (pretrain trains whole weights); "
                    "remove [model.lora], or add a stage that does, such as sft");
}

void read_tokenizer(RunCheck& of) {
  const size_t before = of.problems.size();
  of.problems.attempt(of.recipe.tokenizer.empty() ? "model.path" : "tokenizer", [&] {
    if (const fs::path trained = of.run_folder / "tokenizer"; of.stages_done > 0 && fs::is_directory(trained))
      of.tokenizer = of.recipe.model.chat.with_settings(Tokenizer::load(trained));
    else
      of.tokenizer = start_tokenizer(of.recipe, of.start_folder);
  });
  of.tokenizer_failed = of.problems.size() > before;
}

void read_model(RunCheck& of) {
  const std::string& path = of.recipe.model.path;
  of.problems.attempt(path.empty() ? "model" : "model.path", [&] {
    if (!of.start_folder.empty())
      of.model = read_model_folder(of.start_folder, {}, of.recipe.model.config_changes());
    else if (!path.empty())
      of.model = read_model_folder(expand_path(path), {}, of.recipe.model.config_changes());
    else
      of.model = start_model(of.recipe);
  });
  if (of.model && of.run_folder.empty())
    for (const auto& [key, message] : unread_keys(of.recipe.model, *of.model)) of.problems.add(key, message);
  if (!of.model && !path.empty()) of.tokenizer_failed = true;  // it would have been in the folder
  if (of.model && of.start_folder.empty()) of.problems.attempt("model.lora", [&] { check_adapters(of); });
}

// Settings that fit or do not fit the model's layers.
void check_layers(const RunCheck& of) {
  if (!of.model) return;
  const auto has_latents = [](const KvGroupShape& group) { return group.value_dim == 0; };
  if (of.recipe.rollout.kv_cache_dtype == "fp8" && std::ranges::any_of(of.model->kv_groups(), has_latents))
    of.problems.add("rollout.kv_cache_dtype",
                    "latents of multi-head latent attention are not stored as fp8; set kv_cache_dtype to \"auto\"");
}

void check_vocabulary(const RunCheck& of, const std::string& key, int64_t size) {
  if (!of.model || size <= of.model->shape().vocab_size) return;
  of.problems.add(key, concat("the tokenizer does not belong to the model: it has ", size,
                              " ids, and the model's vocabulary has ", of.model->shape().vocab_size));
}

void check_draft(const RunCheck& of) {
  const SpeculativeConfig& speculative = of.recipe.rollout.speculative;
  if (speculative.method == "mtp" && of.model)
    of.problems.attempt("rollout.speculative.method", [&] { mtp_for_drafts(*of.model); });
  const std::string& folder = speculative.model;
  if (folder.empty()) return;
  of.problems.attempt("rollout.speculative.model", [&] {
    const std::unique_ptr<Model> draft = read_model_folder(expand_path(folder));
    if (of.model && of.tokenizer_is_trained)
      check_draft_vocabulary(*draft, expand_path(folder), *of.model, of.tokenizer ? &*of.tokenizer : nullptr);
  });
}

void check_evaluations(const RunCheck& of) {
  for (size_t i = 0; i < of.recipe.eval.size(); ++i) {
    const EvalEntry& entry = of.recipe.eval[i];
    const Problems problems = of.problems.table(concat("eval[", i, "]"), "");
    problems.attempt("task", [&] {
      const EvalTaskSpec spec = load_eval_task(entry.task);
      spec.task->check();
      spec.task->check_rows(entry.options);
    });
  }
}

// True for a path below the checkpoints of the first `count` stages.
bool is_made_earlier(const RunCheck& of, size_t count, const fs::path& path) {
  const fs::path run = of.run_folder.empty() ? fs::path(expand_path(of.recipe.runs)) / of.recipe.name : of.run_folder;
  for (size_t i = 0; i < count; ++i) {
    const fs::path folder = fs::absolute(run / "checkpoints" / of.recipe.stage[i].name).lexically_normal();
    const fs::path below = fs::absolute(path).lexically_normal().lexically_relative(folder);
    if (!below.empty() && *below.begin() != "..") return true;
  }
  return false;
}

// The next stages go on with the stage's chat template. Its own check reports a template that cannot be used.
void hand_chat_template_on(RunCheck& of, const Stage& stage) {
  const PromptFormat* format = stage.prompt_format();
  if (!format || !of.tokenizer || !stage.hands_model_on()) return;
  try {
    of.tokenizer = format->saved_tokenizer(*of.tokenizer);
  } catch (const Error&) {  // see above
  }
}

void check_stages(RunCheck& of) {
  const StageSettings settings = of.recipe.stage_settings();
  for (size_t i = 0; i < of.recipe.stage.size(); ++i) {
    const StageSpec& spec = of.recipe.stage[i];
    const std::string table = concat("stage[", i, "]");
    const Problems problems = of.problems.table(table, concat("stage ", spec.name, ": "));
    if (static_cast<int64_t>(i) < of.stages_done) {
      hand_chat_template_on(of, *spec.stage);
      continue;
    }
    if (const int64_t size = spec.stage->vocab_size()) {
      problems.attempt("", [&] { of.tokenizer = spec.stage->untrained_tokenizer(); });
      of.tokenizer_is_trained = false;
      check_vocabulary(of, table + ".vocab_size", size);
    }
    if (spec.stage->trains() && !of.tokenizer && !of.tokenizer_failed)
      problems.add("", "there is no tokenizer (give the recipe one, or a tokenizer stage before this one)");
    spec.stage->check({.settings = settings,
                       .problems = problems,
                       .name = spec.name,
                       .tokenizer = of.tokenizer ? &*of.tokenizer : nullptr,
                       .tokenizer_is_trained = of.tokenizer_is_trained,
                       .model = of.model.get(),
                       .adapters = start_lora(of.recipe).r > 0 && spec.stage->trains_adapters(),
                       .run_folder = of.run_folder,
                       .is_made_earlier = [&of, i](const fs::path& path) { return is_made_earlier(of, i, path); }});
    hand_chat_template_on(of, *spec.stage);
  }
}

void check(RunCheck& of) {
  of.problems.attempt("dtype", [&] { model_dtype(of.recipe.dtype, device_kind(of.recipe.device.kind)); });
  read_tokenizer(of);
  read_model(of);
  check_layers(of);
  if (of.tokenizer)
    check_vocabulary(of, of.recipe.tokenizer.empty() ? "model.path" : "tokenizer", of.tokenizer->vocab_size());
  check_stages(of);
  check_optimizers(of.recipe, of.model.get(), of.problems, of.stages_done);
  check_draft(of);
  check_evaluations(of);
  of.problems.throw_if_any();
}

}  // namespace

void check_recipe(const Recipe& recipe) {
  RunCheck of{.recipe = recipe, .problems = Problems(recipe.document)};
  check_unused_keys(recipe, of.problems);
  of.problems.throw_if_any();  // first: a file that the model comes from may be wrong for that reason
  of.problems.attempt("runs", [&] { check_runs_folder(recipe.runs); });
  check(of);
  for (const StageSpec& spec : recipe.stage)
    for (const std::string& warning : spec.stage->warnings()) log::warning("stage ", spec.name, ": ", warning);
}

void check_resumed(const Recipe& recipe, const fs::path& run_folder, int64_t stages_done,
                   const fs::path& start_folder) {
  RunCheck of{.recipe = recipe,
              .problems = Problems(recipe.document),
              .run_folder = run_folder,
              .stages_done = stages_done,
              .start_folder = start_folder};
  check(of);
}

}  // namespace hone
