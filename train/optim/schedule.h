#pragma once
// Learning rates as pure functions of the step.
#include <cstdint>
#include <string>

#include "core/base/registry.h"
#include "core/config/fields.h"

namespace hone {

// Hugging Face's names: constant, linear, cosine, wsd (warmup-stable-decay; its decay_type, too). step counts from 0;
// the first warmup_steps rise linearly from 0.
struct ScheduleConfig {
  std::string lr_scheduler_type = "cosine";
  double learning_rate = 3e-4;
  double min_lr_ratio = 0.1;  // of learning_rate, at the end
  int64_t warmup_steps = 0;
  double decay_ratio = 0.2;           // wsd: share of all steps in which the rate decays
  std::string decay_type = "cosine";  // wsd: cosine, linear, 1-sqrt, exponential
  void fields(Fields& f);
};
// The rate of a step. From total_steps on it keeps its final value.
double learning_rate_at(const ScheduleConfig& config, int64_t step, int64_t total_steps);

// The rate after warm-up as a share of the peak. done in [0, 1]: share of the steps after warm-up that are done. decay:
// share of these steps in which wsd decays.
using ScheduleShape = double (*)(double done, double decay, const ScheduleConfig& config);
const Registry<ScheduleShape>& schedule_shapes();
// The rate of a decay from 1 to `least`. done in [0, 1]: share of its steps.
using DecayShape = double (*)(double done, double least);
const Registry<DecayShape>& decay_shapes();

}  // namespace hone
