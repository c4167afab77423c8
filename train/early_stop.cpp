#include "train/early_stop.h"

#include <cmath>

namespace hone {

void EarlyStopConfig::fields(Fields& f) {
  f("early_stopping_patience", early_stopping_patience,
    "evaluations without a lower eval_loss after which the stage ends; 0 = never");
  f("early_stopping_threshold", early_stopping_threshold, "by how much eval_loss must fall to count as lower");
  f("load_best_model_at_end", load_best_model_at_end,
    "the stage leaves the weights of its lowest eval_loss, not the last ones");
  f.require("early_stopping_patience", early_stopping_patience >= 0, "early_stopping_patience must be 0 or more");
  f.require("early_stopping_threshold", early_stopping_threshold >= 0, "early_stopping_threshold must be 0 or more");
}

bool EarlyStop::observe(int64_t step, double loss) {
  const bool first = best_step_ == 0, lower = std::isfinite(loss) && (first || loss < best_);
  misses_ = lower && (first || best_ - loss > config_.early_stopping_threshold) ? 0 : misses_ + 1;
  if (lower) best_ = loss, best_step_ = step;
  return lower;
}

void EarlyStop::save_state(StateSection& section) const {
  section.values.set("best", best_);
  section.values.set("best_step", best_step_);
  section.values.set("misses", misses_);
}

void EarlyStop::load_state(const StateSection& section) {
  best_ = section.values.at("best", "early stop").as_double("early stop: best");
  best_step_ = section.values.at("best_step", "early stop").as_int("early stop: best_step");
  misses_ = section.values.at("misses", "early stop").as_int("early stop: misses");
}

}  // namespace hone
