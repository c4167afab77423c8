#include "train/phase_timer.h"

namespace hone {

StepTimes PhaseTimer::read() const {
  StepTimes out;
  double* const sums[] = {&out.data, &out.forward, &out.lm_head, &out.backward, &out.exchange, &out.optimizer};
  for (size_t i = 1; i < count_; ++i)
    *sums[static_cast<size_t>(marks_[i].phase)] += marks_[i].event->seconds_since(*marks_[i - 1].event);
  return out;
}

}  // namespace hone
