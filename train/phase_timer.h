#pragma once
// PhaseTimer: device time of the phases of a step, by events between the queued work. They are read after a wait that
// happens anyway.
#include <cstdint>
#include <vector>

#include "core/device/device.h"

namespace hone {

enum class Phase : uint8_t { data, forward, lm_head, backward, optimizer };  // data: the device waits for the host

// Seconds of each phase.
struct StepTimes {
  double data = 0, forward = 0, lm_head = 0, backward = 0, optimizer = 0;
  StepTimes& operator+=(const StepTimes& other) {
    data += other.data, forward += other.forward, lm_head += other.lm_head, backward += other.backward,
        optimizer += other.optimizer;
    return *this;
  }
};

class PhaseTimer {
 public:
  explicit PhaseTimer(Context& context) : context_(context) {}
  // Starts a step.
  void begin() {
    count_ = 0;
    mark(Phase::data);
  }
  // Work queued since the last mark belongs to `phase`.
  void mark(Phase phase) {
    if (count_ == marks_.size()) marks_.push_back({context_.device().make_event(true), phase});
    marks_[count_].phase = phase;
    marks_[count_++].event->record(context_.stream());
  }
  // Times so far. All marks must have been reached.
  StepTimes read() const;

 private:
  struct Mark {
    std::unique_ptr<Event> event;
    Phase phase;
  };
  Context& context_;
  std::vector<Mark> marks_;  // kept from step to step
  size_t count_ = 0;
};

}  // namespace hone
