#pragma once
// MemoryPlan: measures the memory of a trainer's micro-batches before the first one runs. Arenas that grow step by step
// would hold more than they need.
#include <optional>

#include "model/model.h"
#include "train/objective.h"
#include "train/step_plan.h"

namespace hone {

struct TrainerConfig;

// Peak bytes of a step, by owner.
struct PeakBytes {
  size_t tape = 0;     // activations saved for the backward pass
  size_t columns = 0;  // a micro-batch's ids, log-probs and their gradients
  size_t critic = 0;   // activations of a separate critic trunk
  size_t scratch = 0;  // temporary memory of op bodies
};

class MemoryPlan {
 public:
  // Peak bytes of the largest micro-batch of the plan, measured by a step of an equal trainer on the meta device.
  // nullopt if an earlier measurement is enough, or if `context` is on the meta device.
  std::optional<PeakBytes> grow_to_fit(Context& context, const Model& model, const TrainerConfig& config,
                                       const Objective& objective, const StepPlan& plan);

 private:
  int64_t tokens_ = 0;  // of the largest measured micro-batch
};

}  // namespace hone
