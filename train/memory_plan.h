#pragma once
// MemoryPlan: the memory that a trainer's micro-batches take, known before the first of them. Arenas that grew to it
// would hold more than they need.
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"
#include "train/micro_batch.h"
#include "train/objective.h"

namespace hone {

struct TrainerConfig;

// Bytes that a step has in use at its fullest, by what holds them.
struct PeakBytes {
  size_t tape = 0;     // activations that wait for the backward pass
  size_t columns = 0;  // a micro-batch's ids, log-probs and their gradients
  size_t critic = 0;   // activations of a trunk of its own
  size_t scratch = 0;  // of the ops' bodies
};

class MemoryPlan {
 public:
  // What the largest of these micro-batches takes, counted by a step of the same trainer on the meta device; nothing if
  // what was counted for an earlier step is enough, or if `context` counts only itself.
  std::optional<PeakBytes> grow_to_fit(Context& context, const Model& model, const TrainerConfig& config,
                                       const Objective& objective, std::span<const Sample* const> samples,
                                       std::span<const MicroBatch> micro_batches);

 private:
  int64_t tokens_ = 0;  // of a micro-batch, as counted
};

}  // namespace hone
