#include "run/run.h"

#include "core/base/interrupt.h"
#include "core/base/log.h"
#include "core/base/parallel_for.h"
#include "core/base/stopwatch.h"
#include "core/io/file.h"
#include "core/io/folder_lock.h"
#include "core/io/json.h"
#include "model/io/adapter.h"
#include "model/lora.h"
#include "run/input_digests.h"
#include "run/plan.h"
#include "run/report.h"
#include "run/run_eval.h"
#include "run/run_state.h"
#include "train/loop.h"
#include "train/stage.h"

namespace hone {

Json StageReport::to_json() const {
  JsonArray results;
  for (const EvalResult& result : eval) results.push_back(result.to_json());
  return JsonObject{{"name", name},
                    {"kind", kind},
                    {"steps", steps},
                    {"planned_steps", planned_steps},
                    {"kept_step", final_step},
                    {"tokens", tokens},
                    {"seconds", seconds},
                    {"eval", results}};
}

static std::unique_ptr<Model> load_or_draw(const Run& run, const std::filesystem::path& folder, bool gradients) {
  const DType dtype = model_dtype(run.recipe.dtype, run.context.kind());
  const bool adapts = run.recipe.stage[static_cast<size_t>(run.stage_index)].stage->trains_adapters();
  if (!folder.empty()) {
    const LoraConfig lora = adapts ? run.recipe.model.lora.config : LoraConfig{};
    return load_model(
        run.context, folder,
        {.dtype = dtype, .gradients = gradients, .lora = lora, .seed = static_cast<uint64_t>(run.recipe.seed)});
  }
  const int64_t vocabulary = run.tokenizer ? run.tokenizer->vocab_size() : 0;
  std::unique_ptr<Model> model = make_model(run.recipe.model.make_config(vocabulary), run.recipe.model_source());
  model->allocate(run.context, dtype, gradients);
  model->initialize(run.context, static_cast<uint64_t>(run.recipe.seed));
  return model;
}

std::unique_ptr<Model> Run::load_start_model(bool gradients) const {
  return load_or_draw(*this, start_folder, gradients);
}

void Run::stop(const std::string& after, const std::string& why) const {
  fail(why, why.empty() ? "" : "; ", "stopped after ", after, ", everything is saved; go on with: hone run --resume ",
       folder.string());
}

namespace {

Json results_json(const std::vector<EvalResult>& results) {
  JsonArray out;
  for (const EvalResult& result : results) out.push_back(result.to_json());
  return out;
}

void save_progress(Run& run, RunState& state) {
  StateSection section;
  run.log.save_state(section);
  state.log = section.values;
  state.save(run.folder, run.recipe);
}

// The stage's final checkpoint as a model without adapters.
void write_merged(const Run& run) {
  const std::filesystem::path folder = run.checkpoints() / "merged", temporary = folder.string() + ".tmp";
  std::filesystem::remove_all(temporary);
  export_model(run.start_folder, temporary, {});
  if (run.tokenizer) run.tokenizer->save(temporary);
  std::filesystem::remove_all(folder);
  std::filesystem::rename(temporary, folder);
}

// One stage, its evaluation, and the note that it is done.
void run_stage(Run& run, Stage& stage, RunState& state) {
  run.report = {};
  run.report.name = run.stage_name;
  run.report.kind = run.recipe.stage[static_cast<size_t>(run.stage_index)].kind;
  const std::filesystem::path resumed = newest_checkpoint(run.checkpoints());
  if (resumed.empty()) {
    StateSection section;
    section.values = state.log;
    run.log.load_state(section);
  }
  if (stage.trains()) {
    HONE_CHECK(run.tokenizer, run.stage_name, ": there is no tokenizer");
    const bool lacks_adapters =
        run.model && !run.model->lora() && stage.trains_adapters() && run.recipe.model.lora.config.r > 0;
    if (!run.model || !resumed.empty() || lacks_adapters) {
      run.model.reset();
      run.model = load_or_draw(run, resumed.empty() ? run.start_folder : resumed, true);
    }
    if (run.model->lora()) run.model->lora()->seed = run.stage_seed();
    if (!state.evaluated) {
      state.initial = results_json(evaluate(run, run.first_step));
      state.evaluated = true;
      save_progress(run, state);
    }
  }
  log::info("stage ", run.stage_name, " (", run.report.kind, ")");
  const Stopwatch watch;
  stage.run(run);
  if (!stage.trains()) run.report.seconds = watch.seconds();
  if (stage.hands_model_on()) {
    run.start_folder = run.checkpoints() / concat("step-", run.report.final_step);
    if (run.report.final_step != run.report.steps) run.model = load_or_draw(run, run.start_folder, true);
    if (run.recipe.model.lora.merge && run.model->lora()) write_merged(run);
    run.report.eval = evaluate(run, run.first_step + run.report.steps);
  } else if (stage.trains()) {
    run.model.reset();  // made again from start_folder
  }
  state.stages.array_ref().push_back(run.report.to_json());
  state.stages_done = run.stage_index + 1;
  save_progress(run, state);
}

std::filesystem::path execute(const Recipe& recipe, Device& device, const std::filesystem::path& folder,
                              RunState state) {
  install_interrupt_handlers();
  if (recipe.threads > 0) set_num_threads(static_cast<int>(recipe.threads));
  log::also_to_file((folder / "hone.log").string());
  Context context(device);
  context.set_numerics(numerics_of(recipe.numerics));
  MetricsLog run_log(folder);
  Run run{.recipe = recipe,
          .folder = folder,
          .device = device,
          .context = context,
          .log = run_log,
          .tokenizer = {},
          .model = {},
          .stage_name = {},
          .report = {},
          .start_folder = {}};
  if (!recipe.model.path.empty()) run.start_folder = expand_path(recipe.model.path);
  if (!recipe.tokenizer.empty())
    run.tokenizer = Tokenizer::load(expand_path(recipe.tokenizer));
  else if (!run.start_folder.empty())
    run.tokenizer = Tokenizer::load(tokenizer_folder(run.start_folder));

  for (size_t i = 0; i < recipe.stage.size(); ++i) {
    Stage& stage = *recipe.stage[i].stage;
    run.stage_index = static_cast<int64_t>(i);
    run.stage_name = recipe.stage[i].name;
    if (run.stage_index < state.stages_done) {
      const Json& done = state.stages.as_array().at(i);
      if (stage.hands_model_on())
        run.start_folder = run.checkpoints() / concat("step-", done.at("kept_step", "run.json").as_int("kept_step"));
      if (stage.vocab_size() > 0) run.tokenizer = Tokenizer::load(folder / "tokenizer");
      const Json* planned = done.find("planned_steps");  // older runs lack it, and have no epochs
      run.first_step += planned ? planned->as_int("planned_steps") : stage.steps();
    } else {
      run_stage(run, stage, state);
      if (interrupted()) run.stop("stage " + run.stage_name);
      run.first_step += run.report.planned_steps;
    }
  }
  write_report(folder);
  return folder;
}

std::filesystem::path new_folder(const Recipe& recipe) {
  const std::filesystem::path root = expand_path(recipe.runs);
  make_folder(root);
  for (int i = 1;; ++i) {
    std::filesystem::path folder = root / (i == 1 ? recipe.name : concat(recipe.name, "-", i));
    std::error_code problem;
    if (std::filesystem::create_directory(folder, problem)) return folder;
    HONE_CHECK(!problem, folder.string(), ": cannot be made: ", problem.message());
  }
}

// What a killed process was writing or removing. The caller holds the folder's lock, so nobody writes it now.
void remove_temporaries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (auto entry = std::filesystem::recursive_directory_iterator(folder);
       entry != std::filesystem::recursive_directory_iterator(); ++entry) {
    const bool is_stage = entry->path().parent_path() == folder / "checkpoints";
    if (entry->path().extension() != ".tmp" || is_stage) continue;
    found.push_back(entry->path());
    entry.disable_recursion_pending();
  }
  for (const std::filesystem::path& path : found) std::filesystem::remove_all(path);
}

}  // namespace

std::filesystem::path run_recipe(const Recipe& recipe) {
  check_recipe(recipe);
  const std::unique_ptr<Device> device = open_device(recipe.device);
  Recipe resolved = recipe;
  resolved.dtype = name_of(model_dtype(recipe.dtype, device->kind()));
  const std::filesystem::path folder = new_folder(recipe);
  const FolderLock lock(folder);
  write_file_atomic(folder / "recipe.toml", to_toml([&](Fields& f) { resolved.fields(f); }));
  RunState state;
  state.inputs = input_digests(resolved);
  state.save(folder, resolved);
  log::info("run folder: ", folder.string());
  return execute(resolved, *device, folder, state);
}

std::filesystem::path resume_run(const std::filesystem::path& folder, std::span<const std::string> overrides) {
  HONE_CHECK(std::filesystem::exists(folder / "recipe.toml") && std::filesystem::exists(folder / "run.json"),
             folder.string(), ": not a run folder (recipe.toml and run.json are not there)");
  const FolderLock lock(folder);
  const Recipe recipe = read_run_recipe(folder, overrides);
  RunState state = RunState::load(folder, recipe);
  check_same_recipe(state, folder, recipe);
  remove_temporaries(folder);
  const std::unique_ptr<Device> device = open_device(recipe.device);
  model_dtype(recipe.dtype, device->kind());  // or an Error before anything is read
  if (!state.has_results()) state.inputs = input_digests(recipe);
  state.save(folder, recipe);
  return execute(recipe, *device, folder, state);
}

}  // namespace hone
