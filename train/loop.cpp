#include "train/loop.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "core/base/format.h"
#include "core/base/interrupt.h"
#include "core/base/log.h"
#include "core/base/stopwatch.h"
#include "core/io/file.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/adapter.h"
#include "model/io/model_files.h"
#include "train/ranks/save_on_ranks.h"
#include "train/step_record.h"

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

std::filesystem::path newest_checkpoint(const Ranks& ranks, const std::filesystem::path& root) {
  return ranks.on_first("newest checkpoint", [&] { return newest_checkpoint(root).string(); });
}

void stop_run(const std::filesystem::path& run_folder, const std::string& after, const std::string& why) {
  throw AgreedError(concat(why, why.empty() ? "" : "; ", "stopped after ", after,
                           ", everything is saved; resume with: hone run --resume ", run_folder.string()));
}

namespace {

// Says once that dropout of config.json is not applied: hone trains without it.
void warn_of_dropout(const Model& model) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const Json config = model.config();
  std::string given;
  for (const char* key : {"attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"})
    if (const Json* rate = config.find(key); rate && rate->is_number() && rate->as_double() > 0)
      given += concat(given.empty() ? "" : ", ", key, " = ", rate->as_double());
  const std::scoped_lock lock(mutex);
  if (!given.empty() && told.insert(given).second)
    log::warning("config.json of the model has ", given, "; hone trains without this dropout");
}

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

// A trainer that goes on from another's state.
class HandedOn : public Stateful {
 public:
  explicit HandedOn(Trainer& trainer) : trainer_(trainer) {}
  void save_state(StateSection&) const override { fail("a state that is handed on is only loaded"); }
  void load_state(const StateSection& section) override { trainer_.continue_from(section); }

 private:
  Trainer& trainer_;
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
  if (stage.ranks.size() > 1) row["time/exchange"] = times.exchange;
  row["time/data"] = times.data + std::max(0.0, seconds - report.seconds - report.sampling_seconds);
  if (report.sampling_seconds > 0) row["time/sampling"] = report.sampling_seconds;
  return row;
}

// How evenly the passes of a step are dealt.
void add_balance(Metrics& row, const std::vector<double>& passes) {
  if (passes.size() < 2) return;
  const auto [least, most] = std::ranges::minmax(passes);
  row["ranks/slowest"] = most;
  row["ranks/spread"] = most > 0 ? (most - least) / most : 0;
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

// One execution of the loop.
class Loop {
 public:
  Loop(StageContext& stage, const LoopConfig& config, Trainer& trainer,
       const std::map<std::string, Stateful*>& sections, const HeldOut& held_out,
       const std::function<void(const std::filesystem::path&)>& save_model)
      : stage_(stage),
        config_(config),
        trainer_(trainer),
        held_out_(held_out),
        save_model_(save_model),
        early_stop_(held_out.early_stop),
        sections_(sections) {
    if (stage.ranks.is_first()) trainer.dump_to(stage.run_folder / "bad_batch.jsonl");
    sections_["trainer"] = &trainer;
    sections_["log"] = &stage.log;
    sections_["totals"] = &totals_;
    if (held_out.measure) sections_["early_stop"] = &early_stop_;
    resume();
  }

  void run(const std::function<StepReport(int64_t, double)>& body) {
    log::Progress progress(stage_.name, config_.steps, "step");
    while (step_ < config_.steps && !early_stop_.stop()) {
      StepDecision decision = make_step(body, progress);
      if (evaluates() || measures()) decision = evaluate();
      if ((due(config_.save_steps) || decision.save) && last_saved_ != step_) save();
      if (decision.stop && step_ < config_.steps) stop("");
    }
    if (last_saved_ != step_ || step_ == 0) save();
    finish();
  }

 private:
  void resume() {
    if (const std::filesystem::path folder = newest_checkpoint(stage_.ranks, stage_.checkpoints); !folder.empty()) {
      load_sections(folder, sections_);
      log::info("stage ", stage_.name, " resumes at step ", step_, " (", folder.string(), ")");
      if (held_out_.early_stop.load_best_model_at_end && early_stop_.best_step() > 0) keep(early_stop_.best_step());
    } else if (config_.trainer.optimizer_from == "previous") {
      continue_optimizer();
    }
    last_saved_ = step_;
  }

  // The optimizer goes on from the checkpoint that the stage starts from.
  void continue_optimizer() {
    const std::string key = concat("stage ", stage_.name, ": optimizer_from = previous: ");
    HONE_CHECK(!stage_.start_folder.empty(), key,
               "the stage starts from random weights; remove the key, or put a training stage before this one");
    HandedOn state(trainer_);
    try {
      load_sections(stage_.start_folder, {{"trainer", &state}});
    } catch (const Error& error) {  // gets the name of the key
      fail(key, error.what());
    }
    log::info("stage ", stage_.name, ": the optimizer goes on from its step ", trainer_.steps_done(), " (",
              stage_.start_folder.string(), ")");
  }

  std::filesystem::path kept_file(int64_t at) const { return stage_.checkpoints / concat("step-", at) / "keep"; }
  void keep(int64_t at) const {
    stage_.ranks.do_on_first("marking a checkpoint", [&] { write_file_atomic(kept_file(at), ""); });
  }

  void save() {
    trainer_.gather_saved_values();
    save_on_ranks(stage_.ranks, CheckpointWriter(stage_.checkpoints, step_), static_cast<int>(config_.save_total_limit),
                  [&](const std::filesystem::path& folder) {
                    save_model_ ? save_model_(folder) : save_model_folder(stage_, folder);
                  },
                  std::map<std::string, const Stateful*>(sections_.begin(), sections_.end()), {"trainer", "reference"});
    last_saved_ = step_;
    since_saved_ = {};
  }

  [[noreturn]] void stop(const std::string& why) {
    if (last_saved_ != step_) save();
    stop_run(stage_.run_folder, concat("step ", step_, " of stage ", stage_.name), why);
  }

  bool due(int64_t every) const { return every > 0 && step_ % every == 0; }
  bool evaluates() const { return due(config_.eval_steps) && step_ < config_.steps && stage_.evaluate; }
  bool measures() const { return held_out_.measure && (step_ == config_.steps || due(config_.eval_steps)); }

  // Calls work() and exchanges records with the other ranks. An error must not cost completed steps: if the state is
  // that of a completed step on every rank, it is saved before the run stops.
  StepDecision together(StepRecord& record, const std::function<void()>& work) {
    const int64_t updates = trainer_.steps_done();
    try {
      work();
    } catch (const RankFailed&) {  // the run has failed: nothing can be agreed on
      throw;
    } catch (const std::exception& error) {  // becomes a part of the record
      record.error = error.what();
      stage_.ranks.note_failure(record.error);
    }
    record.changed_weights = trainer_.steps_done() != updates;
    record.interrupted = interrupted();
    record.save_due = config_.save_minutes > 0 && since_saved_.seconds() >= 60 * config_.save_minutes;
    const StepDecision out = exchange_records(stage_.ranks, record);
    if (!out.error.empty()) end_by(out);
    return out;
  }

  [[noreturn]] void end_by(const StepDecision& decision) {
    const std::string& why = decision.error;
    if (!decision.is_consistent)
      throw AgreedError(concat(why, "; step ", step_ + 1, " of stage ", stage_.name,
                               " had begun to change the weights, which are not saved; resume from the last ",
                               "checkpoint with: hone run --resume ", stage_.run_folder.string()));
    try {
      if (last_saved_ != step_) save();
    } catch (const RankFailed&) {
      throw;
    } catch (const std::exception& unsaved) {  // adds the first error
      throw AgreedError(
          concat(why, "; and step ", step_, " of stage ", stage_.name, " could not be saved: ", unsaved.what()));
    }
    stop(why);
  }

  StepDecision make_step(const std::function<StepReport(int64_t, double)>& body, log::Progress& progress) {
    const Stopwatch watch;
    StepReport report;
    StepRecord record{.step = step_ + 1};
    stage_.ranks.set_phase(concat("work of step ", step_ + 1));
    const StepDecision decision = together(record, [&] {
      report = body(step_, learning_rate_at(config_.schedule, step_, config_.steps));
      record.loss = report.loss;
      record.grad_norm = report.grad_norm;
      record.num_tokens = report.num_tokens;
      record.samples_digest = report.samples_digest;
      record.weights_digest = report.weights_digest;
      record.loader = loader_state();
      record.passes = report.times.passes();
    });
    const double seconds = watch.seconds();
    ++step_;
    totals_.tokens += report.num_tokens;
    totals_.seconds += seconds;
    Metrics row = row_of(stage_, report, totals_, seconds);
    add_balance(row, decision.passes);
    if (step_ % config_.logging_steps == 0 || step_ == config_.steps)
      stage_.log.metrics(stage_.first_step + step_, row);
    progress.update(step_, note_of(row));
    return decision;
  }

  // The position in the data, for the comparison of ranks.
  std::string loader_state() const {
    const auto loader = sections_.find("loader");
    if (loader == sections_.end() || stage_.ranks.size() == 1) return "";
    StateSection section;
    loader->second->save_state(section);
    return section.values.dump();
  }

  // Evaluates the tasks and measures the held-out data after a step that is due for it.
  StepDecision evaluate() {
    StepRecord record{.step = step_};
    return together(record, [&] {
      if (evaluates()) {
        stage_.model->gather_values();
        stage_.evaluate(stage_.first_step + step_);
      }
      if (measures()) measure();
    });
  }

  // Measures the held-out data. The checkpoint with the lowest loss is kept until a later one is lower.
  void measure() {
    const Metrics measured = held_out_.measure();
    Metrics row;
    for (const auto& [name, value] : measured) row["eval_" + name] = value;
    stage_.log.metrics(stage_.first_step + step_, row);
    const int64_t before = early_stop_.best_step();
    const bool best = early_stop_.observe(step_, measured.at("loss"));
    log::info("step ", step_, ": eval_loss ", measured.at("loss"), best ? ", the lowest so far" : "");
    if (!best || !held_out_.early_stop.load_best_model_at_end) return;
    save();
    keep(step_);
    if (before > 0)
      stage_.ranks.do_on_first("releasing a checkpoint", [&] { std::filesystem::remove(kept_file(before)); });
  }

  void finish() {
    stage_.model->gather_values();  // for the next stage
    stage_.result.steps = step_;
    stage_.result.planned_steps = std::max(config_.steps, step_);  // a resumed run may set fewer steps than it has done
    stage_.result.final_step = early_stop_.kept_step(step_);
    keep(stage_.result.final_step);  // the next stage starts from it, so it is never removed
    stage_.result.tokens = totals_.tokens;
    stage_.result.seconds = totals_.seconds;
  }

  StageContext& stage_;
  const LoopConfig& config_;
  Trainer& trainer_;
  const HeldOut& held_out_;
  const std::function<void(const std::filesystem::path&)>& save_model_;
  Totals totals_;
  int64_t& step_ = totals_.steps;
  EarlyStop early_stop_;
  std::map<std::string, Stateful*> sections_;
  int64_t last_saved_ = 0;
  Stopwatch since_saved_;
};

}  // namespace

void train_loop(StageContext& stage, const LoopConfig& config, Trainer& trainer,
                const std::map<std::string, Stateful*>& sections,
                const std::function<StepReport(int64_t, double)>& body, const HeldOut& held_out,
                const std::function<void(const std::filesystem::path&)>& save_model) {
  warn_of_dropout(*stage.model);
  Loop(stage, config, trainer, sections, held_out, save_model).run(body);
}

}  // namespace hone
