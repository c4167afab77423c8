#pragma once
// SharedRollouts: rollout batches for every rank.
//
// Dealt: every rank has a queue, whose collector samples and scores this rank's part of the requests and gathers the
// groups of all ranks. The batches are equal on all ranks.
// Otherwise rank 0 alone has a queue. It samples and scores all requests, and sends the scored groups to the others.
// Used if the completions have one source: workers, a device of their own, or an engine whose results depend on time.
#include <memory>

#include "core/comm/ranks.h"
#include "posttrain/rl/rollout_queue.h"

namespace hone {

// One per rank. All ranks make the same calls. What it is made with must outlive it.
class SharedRollouts {
 public:
  // queue: null on ranks other than 0 unless `dealt`. tasks: of all ranks.
  SharedRollouts(const Ranks& ranks, bool dealt, std::unique_ptr<RolloutQueue> queue, const TaskSchedule& tasks)
      : ranks_(ranks), dealt_(dealt), queue_(std::move(queue)), tasks_(tasks) {}

  // RolloutQueue::next(). Ranks without a queue get no metrics.
  RolloutQueue::NextBatch next(int64_t step);
  // RolloutQueue::return_batch() of the ranks with a queue.
  void return_batch();
  // The state to save and restore; null: this rank has none.
  RolloutQueue* queue() { return queue_.get(); }

 private:
  const Ranks ranks_;
  const bool dealt_;
  const std::unique_ptr<RolloutQueue> queue_;
  const TaskSchedule& tasks_;
};

}  // namespace hone
