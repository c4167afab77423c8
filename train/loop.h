#pragma once
// The loop that every training stage shares: learning rate, metrics, progress, checkpoints, resuming, interrupts.
#include <exception>
#include <functional>
#include <map>
#include <string>

#include "train/held_out.h"
#include "train/optim/schedule.h"
#include "train/stage.h"
#include "train/trainer.h"

namespace hone {

struct LoopConfig {
  int64_t steps = 100;  // 0: num_train_epochs sets the number
  double num_train_epochs = 0;
  int64_t save_steps = 0;        // steps between checkpoints; 0 = none by this count
  double save_minutes = 10;      // minutes between checkpoints; 0 = none by time
  int64_t save_total_limit = 2;  // checkpoints kept; 0 = all
  int64_t logging_steps = 1;
  int64_t eval_steps = 0;  // steps between evaluations of the tasks and the held-out data; 0 = none in between
  ScheduleConfig schedule;
  TrainerConfig trainer;
  // step: what one step is, for the reference page.
  void fields(Fields& f, const char* step = "optimizer updates");
  // The number of steps, for epochs of `steps_per_epoch` steps.
  int64_t num_steps(double steps_per_epoch) const;
  // Sentences about settings that are allowed and rarely intended.
  std::vector<std::string> warnings() const;
};

// The schedule of post-training in TRL: linear decay to 0. Pretraining uses the default of ScheduleConfig: half a
// cosine, to a tenth of the peak.
inline ScheduleConfig linear_decay(double learning_rate) {
  return {.lr_scheduler_type = "linear", .learning_rate = learning_rate, .min_lr_ratio = 0};
}

// Restores a state of values (no tensors) to that at construction if an exception leaves the scope.
class Rollback {
 public:
  explicit Rollback(Stateful& state) : state_(state) {
    state_.save_state(saved_);
    HONE_CHECK(saved_.tensors.empty(), "rollback: the state has tensors, and a section holds only views of them");
  }
  ~Rollback() {
    if (std::uncaught_exceptions() > exceptions_) state_.load_state(saved_);
  }
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;

 private:
  Stateful& state_;
  StateSection saved_;
  int exceptions_ = std::uncaught_exceptions();
};

// Thrown before the weights change if a step must not be trained on: for example, too many rewards failed. The step can
// be repeated, so the run is saved and stops with the message.
class StepAborted : public Error {
 public:
  using Error::Error;
};

// Data that a stage holds out from training.
struct HeldOut {
  std::function<Metrics()> measure;  // "loss" and more, logged as eval_loss, eval_...
  EarlyStopConfig early_stop;
};

// Calls body(step, learning_rate) for the remaining steps of config.steps (above 0). `step` counts from 0 within the
// stage.
// - `sections` are saved and restored with the trainer and the model.
// - Metrics of the body's report are logged under TRL's names.
// - A body that throws must leave the sections as they were before the step (Rollback). If no optimizer update has
//   begun (Trainer::steps_done()), the state is consistent: it is saved, and the run stops with the message. The same
//   holds for an error between two steps.
// - Held-out data is measured every eval_steps and after the last step. The checkpoint with the lowest loss is kept.
// - save_model writes the model folder of a checkpoint; null: save_model_folder().
// - Writes stage.result: the number of steps and the step whose weights the stage ends with.
// - With several ranks (stage.ranks) all of them call it. After each step they exchange a StepRecord. Each rank writes
//   its part of the trainer's state and of the section "reference" to a checkpoint, rank 0 all else. So the other
//   `sections` may differ between ranks: a section that rank 0 alone has is loaded there alone.
void train_loop(StageContext& stage, const LoopConfig& config, Trainer& trainer,
                const std::map<std::string, Stateful*>& sections,
                const std::function<StepReport(int64_t step, double learning_rate)>& body, const HeldOut& held_out = {},
                const std::function<void(const std::filesystem::path& folder)>& save_model = nullptr);

// Writes the model's folder of a checkpoint: weights and config, or the adapter and the path of its base; the value
// head, if any; the tokenizer.
void save_model_folder(const StageContext& stage, const std::filesystem::path& folder,
                       std::span<const float> value_head = {});

// The newest checkpoint under root (core/io/checkpoint.h), chosen by rank 0.
std::filesystem::path newest_checkpoint(const Ranks& ranks, const std::filesystem::path& root);

// Ends a run whose state is saved: throws an AgreedError that says how to resume. `after`: what was completed last.
// `why`: the cause; empty after a signal.
[[noreturn]] void stop_run(const std::filesystem::path& run_folder, const std::string& after,
                           const std::string& why = "");

}  // namespace hone
