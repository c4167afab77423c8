#pragma once
// Learning rates as pure functions of the step.
#include <cstdint>
#include <string>

#include "core/base/registry.h"
#include "core/config/fields.h"

namespace hone {

// Hugging Face's names: constant, linear, cosine, wsd (warmup-stable-decay). step counts from 0; the first warmup_steps
// rise linearly from 0.
struct ScheduleConfig {
  std::string lr_scheduler_type = "cosine";
  double learning_rate = 3e-4;
  double min_lr_ratio = 0.1;  // of learning_rate, at the end
  int64_t warmup_steps = 0;
  double decay_ratio = 0.2;  // wsd: the share of steps that decays
  void fields(Fields& f);
};
// Past total_steps it stays at the end's.
double learning_rate_at(const ScheduleConfig& config, int64_t step, int64_t total_steps);

// The share of the way from min_lr_ratio (0) to the peak (1) after warm-up: done in [0, 1] is the share of the steps
// after warm-up that are over, decay that share which wsd decays in.
using ScheduleShape = double (*)(double done, double decay);
const Registry<ScheduleShape>& schedule_shapes();

}  // namespace hone
