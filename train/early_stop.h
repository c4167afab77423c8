#pragma once
// When a stage that measures its loss on samples held out has seen enough, and which of its steps was the best
// (transformers' EarlyStoppingCallback).
#include "core/config/fields.h"
#include "core/io/checkpoint.h"

namespace hone {

struct EarlyStopConfig {
  int64_t early_stopping_patience = 0;  // 0 = off
  double early_stopping_threshold = 0;
  bool load_best_model_at_end = false;
  void fields(Fields& f);
};

class EarlyStop : public Stateful {
 public:
  explicit EarlyStop(const EarlyStopConfig& config) : config_(config) {}

  // What was measured after a step. True if it is the lowest loss so far; a loss that is not a number never is.
  bool observe(int64_t step, double loss);
  bool stop() const { return config_.early_stopping_patience > 0 && misses_ >= config_.early_stopping_patience; }
  int64_t best_step() const { return best_step_; }  // 0: nothing measured yet
  // The step whose weights the stage leaves, of the `last` it did.
  int64_t kept_step(int64_t last) const { return config_.load_best_model_at_end && best_step_ > 0 ? best_step_ : last; }

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  EarlyStopConfig config_;
  double best_ = 0;
  int64_t best_step_ = 0, misses_ = 0;
};

}  // namespace hone
