#pragma once
// Curriculum: sets aside tasks that the policy nearly always or nearly never solves, since they have little gradient.
// They are sampled again some epochs later, since the policy may have changed.
#include <vector>

#include "core/config/fields.h"
#include "core/io/metrics.h"
#include "data/mixture.h"

namespace hone {

struct CurriculumConfig {
  int64_t revisit_epochs = 0;  // 0: no task is ever set aside
  double easy = 0.9, hard = 0.1;
  double smoothing = 0.5;
  double threshold = 1;
  void fields(Fields& f);
};

// A task's running pass rate is its first group's pass rate p, then smoothing * rate + (1 - smoothing) * p. Rates of
// `easy` or more and of `hard` or less set it aside; a task that was never sampled is active. State: rates, and when
// each task was last sampled.
class Curriculum : public Stateful {
 public:
  Curriculum(const CurriculumConfig& config, int64_t num_tasks);

  // The next task of `order` that is active, or that was last sampled revisit_epochs or more before the order's epoch.
  int64_t next(Mixture& order) const;
  // Records that a group of the task was sampled in this epoch of the order, and the share of it that passed.
  void record(int64_t task, int64_t epoch, double pass_rate);
  // The smallest reward with which a completion passes.
  double threshold() const { return config_.threshold; }

  // curriculum/{active, easy, hard}: tasks; curriculum/pass_rate: mean of the running rates. Nothing without a
  // curriculum.
  Metrics metrics() const;
  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  bool easy(size_t task) const { return rates_[task] >= config_.easy; }
  bool hard(size_t task) const { return was_sampled(task) && rates_[task] <= config_.hard; }
  bool was_sampled(size_t task) const { return rates_[task] >= 0; }

  CurriculumConfig config_;
  // By task; empty without a curriculum.
  std::vector<double> rates_;  // below 0: never sampled
  std::vector<int64_t> epochs_;
};

}  // namespace hone
