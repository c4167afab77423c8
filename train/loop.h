#pragma once
// The loop that every training stage shares: learning rate, metrics, progress, checkpoints, resuming, interrupts.
#include <exception>
#include <functional>
#include <map>
#include <string>

#include "run/run.h"
#include "train/held_out.h"
#include "train/optim/schedule.h"
#include "train/trainer.h"

namespace hone {

struct LoopConfig {
  int64_t steps = 100;  // 0: num_train_epochs says how many
  double num_train_epochs = 0;
  int64_t save_steps = 0;        // a checkpoint every so many steps; 0 = none by this count
  double save_minutes = 10;      // a checkpoint once so many minutes have passed since the last; 0 = none by the clock
  int64_t save_total_limit = 2;  // checkpoints kept
  int64_t logging_steps = 1;
  int64_t eval_steps = 0;  // the recipe's tasks, and what is held out, every so many steps, too
  ScheduleConfig schedule;
  TrainerConfig trainer;
  // step: what one step is, for the page of keys.
  void fields(Fields& f, const char* step = "optimizer updates");
  // The steps of a stage whose passes over its data have `steps_per_epoch` steps each.
  int64_t num_steps(double steps_per_epoch) const;
  // Settings that are allowed and seldom meant.
  std::vector<std::string> warnings() const;
};

// Post-training's schedule as TRL has it: a linear decay to 0. Pretraining's is ScheduleConfig's own: half a cosine to
// a tenth.
inline ScheduleConfig linear_decay(double learning_rate) {
  return {.lr_scheduler_type = "linear", .learning_rate = learning_rate, .min_lr_ratio = 0};
}

// Puts a small state (values, no tensors) back to what it was when this was made, if an exception leaves the scope.
class Rollback {
 public:
  explicit Rollback(Stateful& state) : state_(state) {
    state_.save_state(saved_);
    HONE_CHECK(saved_.tensors.empty(), "rollback: the state has tensors, of which a section holds views alone");
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

// What a stage holds out from training.
struct HeldOut {
  std::function<Metrics()> measure;  // "loss" and more, logged as eval_loss, eval_...
  EarlyStopConfig early_stop;
};

// Calls body(step, learning_rate) for the steps that are left (config.steps in all, above 0), step counting from 0
// within the stage. `sections` are saved and restored beside the trainer and the model. Metrics of the body's report
// are logged under TRL's names. A body that throws leaves the sections as they were before the step (Rollback). Unless
// an optimizer update has begun (Trainer::steps_done()), the state is then whole: it is saved, and the run stops with
// the message. So it is with an error between two steps. What is held out is measured every eval_steps and after the
// last step; the checkpoint of its lowest loss is kept. run.report says how many steps were done and which one's
// weights the stage leaves. save_model writes the model's folder of a checkpoint (save_model_folder, if null).
void train_loop(Run& run, const LoopConfig& config, Trainer& trainer, const std::map<std::string, Stateful*>& sections,
                const std::function<StepReport(int64_t step, double learning_rate)>& body, const HeldOut& held_out = {},
                const std::function<void(const std::filesystem::path& folder)>& save_model = nullptr);

// The model's folder as a checkpoint holds it: weights and config, or the adapter and where its base is; a value head;
// tokenizer.
void save_model_folder(Run& run, const std::filesystem::path& folder, std::span<const float> value_head = {});

}  // namespace hone
