#include "run/run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "core/base/build_info.h"
#include "core/base/interrupt.h"
#include "core/base/log.h"
#include "core/base/parallel_for.h"
#include "core/base/stopwatch.h"
#include "core/comm/launch.h"
#include "core/device/device_library.h"
#include "core/device/limited_device.h"
#include "core/io/file.h"
#include "core/io/folder_lock.h"
#include "core/io/json.h"
#include "data/prompt.h"
#include "model/io/adapter.h"
#include "model/io/model_files.h"
#include "model/io/model_folder.h"
#include "model/lora.h"
#include "run/input_digests.h"
#include "run/plan/memory_fit.h"
#include "run/rank_choice.h"
#include "run/recipe/check.h"
#include "run/recipe/start.h"
#include "run/recipe/tracker.h"
#include "run/report/report.h"
#include "run/run_facts.h"
#include "run/run_state.h"
#include "train/loop.h"
#include "train/peak_flops.h"
#include "train/stage.h"

namespace hone {

namespace {

namespace fs = std::filesystem;

// One execution of a recipe on one rank: what its stages hand on. All ranks do the same; rank 0 alone writes.
struct Run {
  const Recipe& recipe;
  fs::path folder;
  Context& context;
  MetricsLog& log;
  Ranks ranks;
  std::optional<Tokenizer> tokenizer = {};
  std::unique_ptr<Model> model = {};
  // Where the next stage's model comes from: the last training stage's final checkpoint, the recipe's model folder, or
  // nothing (random weights).
  fs::path start_folder = {};
  int64_t first_step = 0;     // optimizer steps of the completed stages
  int64_t planned_bytes = 0;  // device memory at the peak, as planned; 0 = device.memory sets no limit
};

// One stage's line in the report.
struct StageReport {
  std::string name, kind;
  StageResult result;
  std::vector<EvalResult> eval;  // after the stage
};

Json results_json(const std::vector<EvalResult>& results) {
  JsonArray out;
  for (const EvalResult& result : results) out.push_back(result.to_json());
  return out;
}

Json report_json(const StageReport& report) {
  const StageResult& result = report.result;
  return JsonObject{{"name", report.name},
                    {"kind", report.kind},
                    {"steps", result.steps},
                    {"planned_steps", result.planned_steps},
                    {"kept_step", result.final_step},
                    {"tokens", result.tokens},
                    {"seconds", result.seconds},
                    {"eval", results_json(report.eval)}};
}

// The model of a folder, or random weights if there is none.
std::unique_ptr<Model> load_or_initialize(const Run& run, const Stage& stage, const fs::path& folder, bool gradients) {
  const DType dtype = model_dtype(run.recipe.dtype, run.context.kind());
  const auto seed = static_cast<uint64_t>(run.recipe.seed_or(run.recipe.weights_seed));
  if (!folder.empty()) {
    const LoraConfig lora = stage.trains_adapters() ? run.recipe.model.lora.config : LoraConfig{};
    std::unique_ptr<Model> model =
        load_changed_model(run.context, folder, {.dtype = dtype, .gradients = gradients, .lora = lora, .seed = seed},
                           run.recipe.model.config_changes());
    check_losses(run.recipe.model, *model);
    // Checkpoints with adapters of experts say 0, for PEFT: the value is that of the folder that the run began with.
    if (model->lora() && lora.r == 0 && starts_from_adapter(run.recipe))
      model->lora()->config.lora_dropout = start_lora(run.recipe).lora_dropout;
    return model;
  }
  const int64_t vocabulary = run.tokenizer ? run.tokenizer->vocab_size() : 0;
  std::unique_ptr<Model> model = make_model(run.recipe.model.make_config(vocabulary), run.recipe.model_source());
  check_losses(run.recipe.model, *model);
  model->allocate(run.context, dtype, gradients);
  initialize(run.context, *model, run.recipe.model.init, seed);
  return model;
}

// With several ranks the trainer gives gradients their memory.
bool holds_gradients(const Run& run) { return run.ranks.size() == 1; }

// Evaluates every [[eval]] task and logs the metrics as one row of `step`.
std::vector<EvalResult> evaluate_tasks(Run& run, int64_t step) {
  std::vector<EvalResult> out;
  Metrics row;
  const EngineConfig engine = run.recipe.rollout.as_exact();  // the model itself is evaluated
  for (const EvalEntry& entry : run.recipe.eval) {
    const EvalTaskSpec spec = load_eval_task(entry.task);
    EvalTarget on{run.context, *run.model, *run.tokenizer, engine, run.ranks};
    EvalResult result = spec.evaluate(on, entry.options);
    result.samples.clear();
    const std::string prefix = "eval/" + spec.name + "/";
    if (const auto& accuracy = result.accuracy) {
      row[prefix + "accuracy"] = accuracy->value;
      row[prefix + "accuracy_low"] = accuracy->low;
      row[prefix + "accuracy_high"] = accuracy->high;
    }
    if (const auto& sampled = result.sampled_accuracy) {
      row[prefix + "sampled_accuracy"] = sampled->value;
      if (sampled->interval) {
        row[prefix + "sampled_accuracy_low"] = sampled->interval->low;
        row[prefix + "sampled_accuracy_high"] = sampled->interval->high;
      }
    }
    for (const auto& [name, value] : result.metrics) row[prefix + name] = value;
    if (result.accuracy)
      log::info("eval ", spec.name, ": accuracy ", result.accuracy->value, " [", result.accuracy->low, ", ",
                result.accuracy->high, "] on ", result.num_problems, " problems");
    out.push_back(std::move(result));
  }
  if (!row.empty()) run.log.metrics(step, row);
  return out;
}

// The highest use of device memory so far, of each rank and of all, beside the plan. peaks: of each rank, as text.
void note_peak(const std::vector<std::string>& peaks, RunState& state) {
  const Json* memory = state.about.find("memory");
  if (!memory || !memory->is_object()) return;
  const Json* before = memory->find("peak_bytes");
  int64_t largest = before ? before->as_int("peak_bytes") : 0;
  JsonArray ranks;
  for (const std::string& peak : peaks) {
    ranks.push_back(parse_json(peak, "peak of a rank"));
    largest = std::max(largest, ranks.back().as_int("peak of a rank"));
  }
  Json updated = *memory;
  updated.set("peak_bytes", largest);
  updated.set("rank_peak_bytes", std::move(ranks));
  state.about.set("memory", std::move(updated));
}

// The ranks share the work.
std::vector<EvalResult> evaluate(Run& run, int64_t step) {
  std::vector<EvalResult> out;
  if (run.recipe.eval.empty()) return out;
  run.ranks.do_on_all(concat("evaluation of step ", step), [&] { out = evaluate_tasks(run, step); });
  return out;
}

void save_progress(Run& run, RunState& state) {
  const std::vector<std::string> peaks =
      run.ranks.all_gather(std::to_string(run.context.device().peak_bytes()), "peaks of memory");
  run.ranks.do_on_first("saving run.json", [&] {
    note_peak(peaks, state);
    StateSection section;
    run.log.save_state(section);
    state.log = section.values;
    state.save(run.folder, run.recipe);
  });
}

StageContext context_of(Run& run, size_t index) {
  const StageSpec& spec = run.recipe.stage[index];
  return {.context = run.context,
          .log = run.log,
          .tokenizer = run.tokenizer,
          .model = run.model,
          .run_folder = run.folder,
          .checkpoints = run.folder / "checkpoints" / spec.name,
          .start_folder = run.start_folder,
          .generation_config = run.start_folder.empty() ? Json(JsonObject{}) : read_generation_config(run.start_folder),
          .name = spec.name,
          .index = static_cast<int64_t>(index),
          .first_step = run.first_step,
          .seed = stage_seed(run.recipe.seed, spec.name),
          .data_seed = stage_seed(run.recipe.seed_or(run.recipe.data_seed), spec.name),
          .sampling_seed = stage_seed(run.recipe.seed_or(run.recipe.sampling_seed), spec.name),
          .peak_flops = run.recipe.peak_tflops > 0
                            ? run.recipe.peak_tflops * 1e12
                            : peak_flops(run.context.device(), model_dtype(run.recipe.dtype, run.context.kind())),
          .planned_bytes = run.planned_bytes,
          .rollout = &run.recipe.rollout,
          .load_start_model = [&run, &stage = *spec.stage, start = run.start_folder](
                                  bool gradients) { return load_or_initialize(run, stage, start, gradients); },
          .ranks = run.ranks,
          .micro_batch_multiple = std::max<int64_t>(1, run.recipe.parallel.micro_batch_multiple),
          .zero = run.recipe.parallel.zero,
          .evaluate = [&run](int64_t step) { evaluate(run, step); }};
}

// Writes the stage's final checkpoint as a model without adapters.
void write_merged(const Run& run, const fs::path& checkpoints) {
  const fs::path folder = checkpoints / "merged", temporary = folder.string() + ".tmp";
  fs::remove_all(temporary);
  export_model(run.start_folder, temporary, {});
  if (run.tokenizer) run.tokenizer->save(temporary);
  fs::remove_all(folder);
  fs::rename(temporary, folder);
}

// Loads the model that a training stage starts from or resumes with, and evaluates it if no stage has trained yet.
void prepare_model(Run& run, const Stage& stage, StageContext& context, const fs::path& resumed, RunState& state) {
  HONE_CHECK(run.tokenizer, context.name, ": there is no tokenizer");
  const bool lacks_adapters =
      run.model && !run.model->lora() && stage.trains_adapters() && run.recipe.model.lora.config.r > 0;
  if (!run.model || !resumed.empty() || lacks_adapters) {
    run.model.reset();
    run.model = load_or_initialize(run, stage, resumed.empty() ? run.start_folder : resumed, holds_gradients(run));
  }
  if (run.model->lora()) run.model->lora()->seed = context.seed;
  const std::string& save_dtype = run.recipe.model.save_dtype;
  context.save_dtype = save_dtype == "auto" ? run.model->dtype() : save_dtype == "bf16" ? DType::bf16 : DType::f32;
  if (state.evaluated) return;
  state.initial = results_json(evaluate(run, run.first_step));
  state.evaluated = true;
  save_progress(run, state);
}

// The model is saved with the chat template that the stage trains with, and the next stages go on with it.
void use_chat_template(Run& run, const Stage& stage) {
  if (const PromptFormat* format = stage.prompt_format(); format && run.tokenizer && stage.hands_model_on())
    run.tokenizer = format->saved_tokenizer(*run.tokenizer);
}

// Runs one stage, evaluates its model, and records both.
void run_stage(Run& run, size_t index, RunState& state) {
  const StageSpec& spec = run.recipe.stage[index];
  const Stage& stage = *spec.stage;
  StageContext context = context_of(run, index);
  const fs::path resumed = newest_checkpoint(run.ranks, context.checkpoints);
  if (resumed.empty()) {
    StateSection section;
    section.values = state.log;
    run.log.load_state(section);
    run.ranks.do_on_first("saving the digests of the rows", [&] {
      const Json digests = row_digests(spec);
      for (const auto& [key, digest] : digests.as_object()) state.inputs.set(key, digest);
      state.save(run.folder, run.recipe);
    });
  }
  run.ranks.set_phase(concat("loading the model of stage ", spec.name));
  if (stage.trains()) prepare_model(run, stage, context, resumed, state);
  use_chat_template(run, stage);
  log::info("stage ", spec.name, " (", spec.kind(), ")");
  const Stopwatch watch;
  run.ranks.set_phase(concat("reading the data of stage ", spec.name));
  stage.run(context);
  if (stage.vocab_size() > 0) run.tokenizer = run.recipe.model.chat.with_settings(*run.tokenizer);
  StageReport report{.name = spec.name, .kind = spec.kind(), .result = context.result, .eval = {}};
  if (!stage.trains()) report.result.seconds = watch.seconds();
  if (stage.hands_model_on()) {
    run.start_folder = context.checkpoints / concat("step-", report.result.final_step);
    if (report.result.final_step != report.result.steps)
      run.model = load_or_initialize(run, stage, run.start_folder, holds_gradients(run));
    if (run.recipe.model.lora.merge && run.model->lora())
      run.ranks.do_on_first("merging adapters", [&] { write_merged(run, context.checkpoints); });
    report.eval = evaluate(run, run.first_step + report.result.steps);
  } else if (stage.trains()) {
    run.model.reset();  // loaded again from start_folder
  }
  state.stages.array_ref().push_back(report_json(report));
  state.stages_done = static_cast<int64_t>(index) + 1;
  run.first_step += report.result.planned_steps;
  save_progress(run, state);
}

// The checkpoint that a completed stage hands on; empty if it hands no model on.
fs::path handed_on(const Recipe& recipe, const fs::path& folder, size_t index, const RunState& state) {
  const StageSpec& spec = recipe.stage[index];
  if (!spec.stage->hands_model_on()) return {};
  const Json& done = state.stages.as_array().at(index);
  return folder / "checkpoints" / spec.name / concat("step-", done.at("kept_step", "run.json").as_int("kept_step"));
}

// The same of all completed stages.
fs::path handed_on(const Recipe& recipe, const fs::path& folder, const RunState& state) {
  fs::path out;
  for (size_t i = 0; i < static_cast<size_t>(state.stages_done); ++i)
    if (fs::path checkpoint = handed_on(recipe, folder, i, state); !checkpoint.empty()) out = std::move(checkpoint);
  return out;
}

// Takes over what a stage of an earlier process left.
void skip_stage(Run& run, size_t index, const RunState& state) {
  const StageSpec& spec = run.recipe.stage[index];
  const Json& done = state.stages.as_array().at(index);
  if (fs::path checkpoint = handed_on(run.recipe, run.folder, index, state); !checkpoint.empty())
    run.start_folder = std::move(checkpoint);
  if (spec.stage->vocab_size() > 0)
    run.tokenizer = run.recipe.model.chat.with_settings(Tokenizer::load(run.folder / "tokenizer"));
  use_chat_template(run, *spec.stage);
  const Json* planned = done.find("planned_steps");  // older runs lack it, and have no epochs
  run.first_step += planned ? planned->as_int("planned_steps") : spec.stage->steps();
}

// Runs the stages on one rank.
void run_stages(const Recipe& recipe, const fs::path& folder, RunState state, const Ranks& ranks, Device& device) {
  Context context(device);
  context.set_numerics(numerics_of(recipe.numerics));
  MetricsLog run_log = ranks.is_first() ? MetricsLog(folder) : MetricsLog();
  std::optional<Tracker> tracker;
  if (ranks.is_first()) {
    tracker.emplace(recipe.tracker, folder,
                    JsonObject{{"name", recipe.name}, {"version", version_text()}, {"config", recipe.json()}});
    run_log.on_row([&](int64_t begin) { tracker->notify(begin); });
  }
  Run run{.recipe = recipe, .folder = folder, .context = context, .log = run_log, .ranks = ranks};
  if (const Json* memory = state.about.find("memory"); memory && memory->is_object())
    if (const Json* planned = memory->find("planned_bytes")) run.planned_bytes = planned->as_int("planned_bytes");
  if (!recipe.model.path.empty()) run.start_folder = expand_path(recipe.model.path);
  run.tokenizer = start_tokenizer(recipe, handed_on(recipe, folder, state));

  for (size_t i = 0; i < recipe.stage.size(); ++i) {
    if (static_cast<int64_t>(i) < state.stages_done) {
      skip_stage(run, i, state);
    } else {
      run_stage(run, i, state);
      if (ranks.any(interrupted(), "end of a stage")) stop_run(folder, "stage " + recipe.stage[i].name);
    }
  }
}

// limit: of the memory of each rank's device; none: no limit.
fs::path execute(const Recipe& recipe, const std::vector<std::string>& devices, std::optional<int64_t> limit,
                 const fs::path& folder, const RunState& state) {
  install_interrupt_handlers();
  if (recipe.threads > 0) set_num_threads(static_cast<int>(recipe.threads));
  log::also_to_file((folder / "hone.log").string());
  if (devices.size() > 1)
    log::info(devices.size(), " ranks on ", join(devices), ": each trains, samples and evaluates a part ",
              "(micro_batch_multiple = ", std::max<int64_t>(1, recipe.parallel.micro_batch_multiple),
              "); rank 0 writes");
  if (devices.size() > 1 && recipe.parallel.zero == 1)
    log::warning("parallel.zero = 1: a rank sums its gradients before it sends them, so results repeat for ",
                 devices.size(), " ranks, but are not the bits of another number of ranks; zero = 2 or 3 has them");
  std::vector<Recipe> recipes;  // stages and objectives carry state, so each rank has its own
  for (size_t rank = 0; rank < devices.size(); ++rank) recipes.push_back(read_again(recipe));
  LaunchOptions launch{.timeout = recipe.parallel.timeout};
  launch.open = [limit](const std::string& name) {
    std::unique_ptr<Device> device = open_device(name);
    return limit ? limit_memory(std::move(device), static_cast<size_t>(*limit)) : std::move(device);
  };
  run_ranks(devices, launch, [&](const Ranks& ranks, Device& device) {
    run_stages(recipes[static_cast<size_t>(ranks.rank())], folder, state, ranks, device);
  });
  write_report(folder);
  return folder;
}

fs::path new_folder(const Recipe& recipe) {
  const fs::path root = expand_path(recipe.runs);
  make_folder(root);
  for (int i = 1;; ++i) {
    fs::path folder = root / (i == 1 ? recipe.name : concat(recipe.name, "-", i));
    std::error_code problem;
    if (fs::create_directory(folder, problem)) return folder;
    HONE_CHECK(!problem, folder.string(), ": cannot be made: ", problem.message());
  }
}

// Removes the temporary files of a killed process. The caller holds the folder's lock, so no process writes them.
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

// Throws Error before anything is computed if the device, or a library that training on it needs, is not there.
std::unique_ptr<Device> open_run_device(const Recipe& recipe, const std::string& name) {
  std::unique_ptr<Device> device = open_device(name);
  const bool trains =
      std::any_of(recipe.stage.begin(), recipe.stage.end(), [](const StageSpec& spec) { return spec.stage->trains(); });
  if (trains) require_training_libraries(*device);
  return device;
}

}  // namespace

// The devices of the ranks. Says what "auto" leaves out.
static std::vector<std::string> devices_of(const Recipe& recipe) {
  RankChoice choice = choose_ranks(recipe);
  for (const std::string& note : choice.notes) log::info(note);
  return std::move(choice.devices);
}

// What each rank may allocate. Ranks may share a device, and devices may differ.
static int64_t rank_limit(const DeviceSettings& settings, const std::vector<std::string>& devices) {
  int64_t out = 0;
  for (const std::string& name : std::set<std::string>(devices.begin(), devices.end())) {
    const int64_t limit = memory_limit(settings, *open_device(name), std::ranges::count(devices, name));
    out = out == 0 ? limit : std::min(out, limit);
  }
  return out;
}

// Fits the recipe into the memory of its devices before anything is computed.
static MemoryFit limit_run(Recipe& recipe, const std::vector<std::string>& devices) {
  const std::string kind = recipe.device.kind;
  recipe.device.kind = name_of(device_kind(devices.front()));  // "auto" may have found no GPU
  const int64_t limit = rank_limit(recipe.device, devices);
  MemoryFit out = fit_memory(recipe, limit, devices.size());
  recipe.device.kind = kind;
  std::string text = fit_text(out);
  text.pop_back();  // the last line break
  log::info(text);
  return out;
}

// A resumed run has the settings that were chosen when it began. With "auto" it may take what it had then, if that is
// still free.
static int64_t limit_resumed(const Recipe& recipe, const RunState& state, const std::vector<std::string>& devices) {
  int64_t limit = rank_limit(recipe.device, devices);
  const int64_t free = static_cast<int64_t>(open_device(devices.front())->free_bytes()) / ranks_per_device(devices);
  if (const Json* before = state.about.find("memory"); before && recipe.device.memory == "auto")
    if (const Json* bytes = before->find("limit_bytes"))
      limit = std::max(limit, std::min(bytes->as_int("limit_bytes"), free));
  return limit;
}

std::filesystem::path run_recipe(const Recipe& recipe, const FolderObserver& observer) {
  check_launcher();
  check_recipe(recipe);
  const std::vector<std::string> devices = devices_of(recipe);
  for (const std::string& name : devices) open_device(name);  // each rank opens its own again
  const std::unique_ptr<Device> device = open_run_device(recipe, devices.front());
  if (!recipe.rollout.device.empty()) open_device(recipe.rollout.device);  // the rl stage opens it again
  Recipe resolved = recipe;
  resolved.dtype = name_of(model_dtype(recipe.dtype, device->kind()));
  if (recipe.parallel.micro_batch_multiple == 0)
    resolved.parallel.micro_batch_multiple = static_cast<int64_t>(devices.size());
  std::optional<MemoryFit> fit;
  if (recipe.device.limits_memory()) fit = limit_run(resolved, devices);
  const std::filesystem::path folder = new_folder(recipe);
  const FolderLock lock(folder);
  write_file_atomic(folder / "recipe.toml", resolved.toml());
  RunState state;
  state.inputs = input_digests(resolved);
  state.about = run_facts(*device);
  if (fit) state.about.set("memory", fit_json(*fit));
  state.save(folder, resolved);
  log::info("run folder: ", folder.string());
  if (observer) observer(folder);
  return execute(resolved, devices, fit ? std::optional(fit->limit_bytes) : std::nullopt, folder, state);
}

std::filesystem::path resume_run(const std::filesystem::path& folder, std::span<const std::string> overrides) {
  HONE_CHECK(std::filesystem::exists(folder / "recipe.toml") && std::filesystem::exists(folder / "run.json"),
             folder.string(), ": not a run folder (recipe.toml and run.json are not there)");
  check_launcher();
  const FolderLock lock(folder);
  const Recipe recipe = read_run_recipe(folder, overrides);
  RunState state = RunState::load(folder, recipe);
  check_same_recipe(state, folder, recipe);
  remove_temporaries(folder);
  const std::vector<std::string> devices = devices_of(recipe);
  const std::unique_ptr<Device> device = open_run_device(recipe, devices.front());
  std::optional<int64_t> limit;
  if (recipe.device.limits_memory()) limit = limit_resumed(recipe, state, devices);
  if (state.stages_done < std::ssize(recipe.stage))
    check_resumed(recipe, folder, state.stages_done, handed_on(recipe, folder, state));
  if (!state.has_results()) state.inputs = input_digests(recipe);
  Json resumed = JsonArray{};
  if (const Json* earlier = state.about.find("resumed")) resumed = *earlier;
  if (!resumed.is_array()) resumed = JsonArray{};
  resumed.array_ref().push_back(run_facts(*device));
  state.about.set("resumed", resumed);
  state.save(folder, recipe);
  return execute(recipe, devices, limit, folder, state);
}

}  // namespace hone
