#pragma once
// MixedBatch: one forward pass over the parts of a plan, prompts' chunks and decodes together, with all that a request
// may ask for. One thread.
#include "rollout/device_timer.h"
#include "rollout/sampler.h"
#include "rollout/scheduler.h"

namespace hone {

class MixedBatch {
 public:
  MixedBatch(Context& context, Model& model, const KvStorage& planes)
      : context_(context), model_(model), planes_(planes), staging_(context.device()), clock_(context) {}

  // What is drawn of a part whose sequence is all computed now: for its reply, or for each of the replies that begin
  // here. One row, and another one for each proposed token, drawn as if those before it were in the reply.
  struct Draw {
    const Scheduler::ScheduledSequence* part = nullptr;
    int64_t reply = 0;
    size_t row = 0;  // of drawn
  };
  struct Result {
    std::vector<Draw> draws;
    SampledTokens drawn;
  };
  // Computes the parts' tokens (sequence->computed is the caller's to move on), writes the scores of prompts to their
  // replies, and draws.
  Result run(std::span<const Scheduler::ScheduledSequence> parts);
  // The device's, of the passes up to the last that was waited for.
  double seconds() const { return clock_.seconds(); }

 private:
  Context& context_;
  Model& model_;
  const KvStorage& planes_;
  Arena staging_;
  DeviceTimer clock_;
};

}  // namespace hone
