#pragma once
// The loss of held-out samples. measure_loss() computes it without an update. EarlyStop decides from it when a stage
// ends and which step was the best (transformers' EarlyStoppingCallback).
#include <span>

#include "core/comm/ranks.h"
#include "core/config/fields.h"
#include "core/io/checkpoint.h"
#include "train/objective.h"
#include "train/trainer.h"

namespace hone {

// The objective's metrics and "loss" over all samples under the current model, averaged as in one optimizer step.
// Members of a pair are adjacent. Results do not depend on packing. The ranks share the passes, and all of them call
// it.
Metrics measure_loss(Context& context, Model& model, Trainer& trainer, double temperature,
                     std::span<const Sample* const> samples, const Objective& objective, const Ranks& ranks = {});

struct EarlyStopConfig {
  int64_t early_stopping_patience = 0;  // measurements without a lower loss; 0 = never stop
  double early_stopping_threshold = 0;
  bool load_best_model_at_end = false;
  void fields(Fields& f);
};

class EarlyStop : public Stateful {
 public:
  explicit EarlyStop(const EarlyStopConfig& config) : config_(config) {}

  // Records the loss measured after a step. True if it is the lowest so far; NaN never is.
  bool observe(int64_t step, double loss);
  bool stop() const { return config_.early_stopping_patience > 0 && misses_ >= config_.early_stopping_patience; }
  int64_t best_step() const { return best_step_; }  // 0: nothing measured yet
  // The step whose weights the stage ends with. `last`: the last trained step.
  int64_t kept_step(int64_t last) const { return config_.load_best_model_at_end && best_step_ > 0 ? best_step_ : last; }

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  EarlyStopConfig config_;
  double best_ = 0;
  int64_t best_step_ = 0, misses_ = 0;
};

}  // namespace hone
