#pragma once
// MemoryPlan: the memory of a trainer's micro-batches, measured before the first of them. Arenas that grow step by step
// would hold more than they need.
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"
#include "train/micro_batch.h"
#include "train/objective.h"

namespace hone {

struct TrainerConfig;

// Peak bytes of a step, by owner.
struct PeakBytes {
  size_t tape = 0;     // activations saved for the backward pass
  size_t columns = 0;  // a micro-batch's ids, log-probs and their gradients
  size_t critic = 0;   // activations of a separate critic trunk
  size_t scratch = 0;  // of op bodies
};

class MemoryPlan {
 public:
  // The peak of the largest of these micro-batches, measured by a step of the same trainer on the meta device. Nothing
  // if the measurement for an earlier step is enough, or if `context` itself is on the meta device.
  std::optional<PeakBytes> grow_to_fit(Context& context, const Model& model, const TrainerConfig& config,
                                       const Objective& objective, std::span<const Sample* const> samples,
                                       std::span<const MicroBatch> micro_batches);

 private:
  int64_t tokens_ = 0;  // of the largest measured micro-batch
};

}  // namespace hone
