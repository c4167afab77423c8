#pragma once
// The loop that every training stage shares: learning rate, metrics, progress, checkpoints, resuming, interrupts.
#include <functional>
#include <map>
#include <string>

#include "core/optim/schedule.h"
#include "posttrain/early_stop.h"
#include "posttrain/run.h"
#include "pretrain/trainer.h"

namespace hone {

struct LoopConfig {
  int64_t steps = 100;
  int64_t save_steps = 0;        // a checkpoint every so many steps; 0 = at the end alone
  int64_t save_total_limit = 2;  // checkpoints kept
  int64_t logging_steps = 1;
  int64_t eval_steps = 0;  // the recipe's tasks, and what is held out, every so many steps, too
  ScheduleConfig schedule;
  TrainerConfig trainer;
  void fields(Fields& f);
};

// What a stage holds out from training.
struct HeldOut {
  std::function<Metrics()> measure;  // "loss" and more, logged as eval_loss, eval_...
  EarlyStopConfig early_stop;
};

// Calls body(step, learning_rate) for the steps that are left, step counting from 0 within the stage. `sections` are saved and restored beside the
// trainer and the model. Metrics of the body's report are logged under TRL's names. A body that throws RewardsFailed has changed nothing yet: all is
// saved as it was before the step, and the run stops with the message. What is held out is measured every eval_steps and after the last step; the
// checkpoint of its lowest loss is kept. run.report says how many steps were done and which one's weights the stage leaves. save_model writes the
// model's folder of a checkpoint (save_model_folder, if null).
void train_loop(Run& run, const LoopConfig& config, Trainer& trainer, const std::map<std::string, Stateful*>& sections,
                const std::function<StepReport(int64_t step, double learning_rate)>& body, const HeldOut& held_out = {},
                const std::function<void(const std::filesystem::path& folder)>& save_model = nullptr);

// The model's folder as a checkpoint holds it: weights and config, or the adapter and where its base is; a value head; tokenizer.
void save_model_folder(Run& run, const std::filesystem::path& folder, std::span<const float> value_head = {});

}  // namespace hone
