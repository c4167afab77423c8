#include "train/loop.h"

#include <algorithm>
#include <cmath>

#include "core/base/format.h"
#include "core/base/interrupt.h"
#include "core/base/log.h"
#include "core/base/stopwatch.h"
#include "core/io/file.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/adapter.h"
#include "model/io/model_files.h"

namespace hone {

void LoopConfig::fields(Fields& f, const char* step) {
  f("num_train_epochs", num_train_epochs,
    "epochs over the data instead of steps, for example 0.5; 0 = steps sets the length");
  f.require("num_train_epochs", num_train_epochs >= 0 && num_train_epochs <= 1e9,
            "num_train_epochs must be in [0, 1e9]");
  if (num_train_epochs > 0) f.default_if_absent("steps", 0);
  f("steps", steps, concat(step, "; 0 = num_train_epochs sets the number").c_str());
  f.require(
      "steps", num_train_epochs == 0 || steps == 0,
      concat("the stage has steps = ", steps, " and num_train_epochs = ", num_train_epochs, ": set only one of them"));
  f("save_steps", save_steps, "steps between checkpoints; 0 = none by this count");
  f("save_minutes", save_minutes,
    "minutes between checkpoints, each saved after the step in progress; 0 = none by time. Results do not depend on "
    "it");
  f("save_total_limit", save_total_limit, "number of checkpoints to keep; 0 = all");
  f("logging_steps", logging_steps, "steps between rows of metrics");
  f("eval_steps", eval_steps,
    "steps between evaluations of the recipe's tasks and of the held-out data; 0 = only before the stage (tasks) and "
    "after it");
  schedule.fields(f);
  trainer.fields(f);
  f.require("steps", steps > 0 || (steps == 0 && num_train_epochs > 0),
            "steps must be positive, or 0 with a num_train_epochs above 0");
  f.require("save_minutes", save_minutes >= 0, "save_minutes must be 0 or more");
  f.require("save_steps", save_steps >= 0, "save_steps must be 0 or more");
  f.require("save_total_limit", save_total_limit >= 0, "save_total_limit must be 0 or more");
  f.require("eval_steps", eval_steps >= 0, "eval_steps must be 0 or more");
  f.require("logging_steps", logging_steps > 0, "logging_steps must be positive");
}

int64_t LoopConfig::num_steps(double steps_per_epoch) const {
  if (steps > 0) return steps;
  const double wanted = std::ceil(num_train_epochs * steps_per_epoch);
  HONE_CHECK(wanted <= 1e15, "num_train_epochs = ", num_train_epochs, " makes ", wanted, " steps: set fewer epochs");
  return std::max<int64_t>(1, static_cast<int64_t>(wanted));
}

std::vector<std::string> LoopConfig::warnings() const {
  std::vector<std::string> out;
  if (schedule.learning_rate == 0) out.push_back("learning_rate is 0: no weight will change");
  if (steps > 0 && schedule.warmup_steps >= steps)
    out.push_back(concat("warmup_steps = ", schedule.warmup_steps, " of ", steps,
                         " steps: the learning rate never reaches its peak"));
  return out;
}

void save_model_folder(const StageContext& stage, const std::filesystem::path& folder,
                       std::span<const float> value_head) {
  if (stage.model->lora())
    save_adapter(stage.context, *stage.model, folder, stage.save_dtype, value_head);
  else
    save_model(stage.context, *stage.model, folder, stage.save_dtype,
               stage.tokenizer ? with_stop_ids(stage.generation_config, *stage.tokenizer) : stage.generation_config,
               value_head);
  if (stage.tokenizer) stage.tokenizer->save(folder);
}

void stop_run(const std::filesystem::path& run_folder, const std::string& after, const std::string& why) {
  fail(why, why.empty() ? "" : "; ", "stopped after ", after, ", everything is saved; resume with: hone run --resume ",
       run_folder.string());
}

namespace {

// Sums over the steps of a stage; a resumed run continues them.
struct Totals : Stateful {
  int64_t steps = 0, tokens = 0;
  double seconds = 0;
  void save_state(StateSection& section) const override {
    section.values.set("steps", steps);
    section.values.set("tokens", tokens);
    section.values.set("seconds", seconds);
  }
  void load_state(const StateSection& section) override {
    steps = section.values.at("steps", "totals").as_int("totals.steps");
    tokens = section.values.at("tokens", "totals").as_int("totals.tokens");
    seconds = section.values.at("seconds", "totals").as_double("totals.seconds");
  }
};

// Model FLOPs by convention (ModelFlops::causal_train_flops_per_token) over what the device could compute in the time
// of the updates; sampling and data loading are not in that time.
void add_mfu(Metrics& row, const StageContext& stage, const StepReport& report) {
  if (stage.peak_flops > 0 && report.seconds > 0) row["mfu"] = report.flops / (report.seconds * stage.peak_flops);
}

Metrics row_of(const StageContext& stage, const StepReport& report, const Totals& totals, double seconds) {
  Metrics row = report.metrics;
  row["stage"] = static_cast<double>(stage.index);
  row["loss"] = report.loss;
  row["grad_norm"] = report.grad_norm;
  row["learning_rate"] = report.learning_rate;
  row["num_tokens"] = static_cast<double>(totals.tokens);
  row["step_time"] = seconds;
  row["tokens_per_second"] = static_cast<double>(report.num_tokens) / seconds;
  add_mfu(row, stage, report);
  const Device& device = stage.context.device();
  if (device.kind() == DeviceKind::cuda || stage.planned_bytes > 0) {
    row["memory/allocated_gb"] = static_cast<double>(device.used_bytes()) * 1e-9;
    row["memory/peak_gb"] = static_cast<double>(device.peak_bytes()) * 1e-9;
  }
  if (stage.planned_bytes > 0) row["memory/planned_gb"] = static_cast<double>(stage.planned_bytes) * 1e-9;
  const StepTimes& times = report.times;
  row["time/forward"] = times.forward;
  row["time/lm_head"] = times.lm_head;
  row["time/backward"] = times.backward;
  row["time/optimizer"] = times.optimizer;
  row["time/data"] = times.data + std::max(0.0, seconds - report.seconds - report.sampling_seconds);
  if (report.sampling_seconds > 0) row["time/sampling"] = report.sampling_seconds;
  return row;
}

// The end of the progress line: "loss 2.1345, 12345 tokens/s, mfu 41.2%".
std::string note_of(const Metrics& row) {
  const auto reward = row.find("reward"), mfu = row.find("mfu");
  std::string out =
      reward != row.end() ? format_text("reward %.3f", reward->second) : format_text("loss %.4f", row.at("loss"));
  out += format_text(", %.0f tokens/s", row.at("tokens_per_second"));
  if (mfu != row.end()) out += format_text(", mfu %.1f%%", 100 * mfu->second);
  return out;
}

}  // namespace

void train_loop(StageContext& stage, const LoopConfig& config, Trainer& trainer,
                const std::map<std::string, Stateful*>& sections,
                const std::function<StepReport(int64_t, double)>& body, const HeldOut& held_out,
                const std::function<void(const std::filesystem::path&)>& save_model) {
  Totals totals;
  EarlyStop early_stop(held_out.early_stop);
  std::map<std::string, Stateful*> all = sections;
  all["trainer"] = &trainer;
  trainer.dump_to(stage.run_folder / "bad_batch.jsonl");
  all["log"] = &stage.log;
  all["totals"] = &totals;
  if (held_out.measure) all["early_stop"] = &early_stop;
  const std::map<std::string, const Stateful*> saved(all.begin(), all.end());

  const auto keep = [&](int64_t at) { write_file_atomic(stage.checkpoints / concat("step-", at) / "keep", ""); };
  int64_t& step = totals.steps;
  if (const std::filesystem::path folder = newest_checkpoint(stage.checkpoints); !folder.empty()) {
    load_sections(folder, all);
    log::info("stage ", stage.name, " resumes at step ", step, " (", folder.string(), ")");
    if (held_out.early_stop.load_best_model_at_end && early_stop.best_step() > 0) keep(early_stop.best_step());
  }
  int64_t last_saved = step;
  Stopwatch since_saved;
  const auto save = [&] {
    save_checkpoint(
        stage.checkpoints, step, static_cast<int>(config.save_total_limit),
        [&](const std::filesystem::path& folder) {
          save_model ? save_model(folder) : save_model_folder(stage, folder);
        },
        saved);
    last_saved = step;
    since_saved = {};
  };

  // Measures the held-out data. The checkpoint with the lowest loss is kept until a later one is lower.
  const auto measure = [&] {
    const Metrics measured = held_out.measure();
    Metrics row;
    for (const auto& [name, value] : measured) row["eval_" + name] = value;
    stage.log.metrics(stage.first_step + step, row);
    const int64_t before = early_stop.best_step();
    const bool best = early_stop.observe(step, measured.at("loss"));
    log::info("step ", step, ": eval_loss ", measured.at("loss"), best ? ", the lowest so far" : "");
    if (!best || !held_out.early_stop.load_best_model_at_end) return;
    save();
    keep(step);
    if (before > 0) std::filesystem::remove(stage.checkpoints / concat("step-", before) / "keep");
  };
  const auto stop = [&](const std::string& why) {
    if (last_saved != step) save();
    stop_run(stage.run_folder, concat("step ", step, " of stage ", stage.name), why);
  };
  // An error must not cost completed steps. If the state is that of a completed step, it is saved before the run
  // stops.
  const auto or_stop = [&](const auto& what) {
    const int64_t updates = trainer.steps_done();
    try {
      what();
    } catch (const std::exception& error) {
      const std::string why = error.what();
      if (trainer.steps_done() != updates)
        fail(why, "; step ", step + 1, " of stage ", stage.name,
             " had begun to change the weights, which are not saved; resume from the last checkpoint with: ",
             "hone run --resume ", stage.run_folder.string());
      try {
        if (last_saved != step) save();
      } catch (const std::exception& unsaved) {
        fail(why, "; and step ", step, " of stage ", stage.name, " could not be saved: ", unsaved.what());
      }
      stop(why);
    }
  };
  const auto due = [&](int64_t every) { return every > 0 && step % every == 0; };
  const auto after_step = [&] {
    if (due(config.eval_steps) && step < config.steps && stage.evaluate) stage.evaluate(stage.first_step + step);
    if (held_out.measure && (step == config.steps || due(config.eval_steps))) measure();
  };

  log::Progress progress(stage.name, config.steps, "step");
  while (step < config.steps && !early_stop.stop()) {
    const Stopwatch watch;
    StepReport report;
    or_stop([&] { report = body(step, learning_rate_at(config.schedule, step, config.steps)); });
    const double seconds = watch.seconds();
    ++step;
    totals.tokens += report.num_tokens;
    totals.seconds += seconds;
    const Metrics row = row_of(stage, report, totals, seconds);
    if (step % config.logging_steps == 0 || step == config.steps) stage.log.metrics(stage.first_step + step, row);
    progress.update(step, note_of(row));
    or_stop(after_step);
    const bool late = config.save_minutes > 0 && since_saved.seconds() >= 60 * config.save_minutes;
    if ((due(config.save_steps) || late) && last_saved != step) save();
    if (interrupted() && step < config.steps) stop("");
  }
  if (last_saved != step || step == 0) save();
  stage.result.steps = step;
  stage.result.planned_steps = std::max(config.steps, step);  // a resumed run may set fewer steps than it has done
  stage.result.final_step = early_stop.kept_step(step);
  keep(stage.result.final_step);  // the next stage starts from it, so it is never removed
  stage.result.tokens = totals.tokens;
  stage.result.seconds = totals.seconds;
}

}  // namespace hone
