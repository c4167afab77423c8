#pragma once
// SharedRollouts: rollout batches for every rank. Rank 0 samples and scores them, and sends the scored groups to the
// others: a reward with effects outside of the run has them once.
#include <memory>

#include "core/comm/ranks.h"
#include "posttrain/rl/rollout_queue.h"

namespace hone {

// The groups of a rollout batch as bytes, and back. `tasks` has the tasks of the groups, by id.
std::string pack_groups(std::span<const Group> groups);
std::vector<Group> unpack_groups(std::string_view bytes, const TaskSchedule& tasks);

// One per rank. All ranks make the same calls. What it is made with must outlive it.
class SharedRollouts {
 public:
  // queue: null on ranks other than 0. tasks: of all ranks.
  SharedRollouts(const Ranks& ranks, std::unique_ptr<RolloutQueue> queue, const TaskSchedule& tasks)
      : ranks_(ranks), queue_(std::move(queue)), tasks_(tasks) {}

  // RolloutQueue::next() of rank 0. Ranks other than 0 get no metrics.
  RolloutQueue::NextBatch next(int64_t step);
  // RolloutQueue::return_batch() of rank 0.
  void return_batch();
  // The state to save and restore: rank 0's queue; null on the others.
  RolloutQueue* queue() { return queue_.get(); }

 private:
  const Ranks ranks_;
  const std::unique_ptr<RolloutQueue> queue_;
  const TaskSchedule& tasks_;
};

}  // namespace hone
