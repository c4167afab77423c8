#include "posttrain/rl/shared_rollouts.h"

#include "posttrain/rl/group_bytes.h"

namespace hone {

RolloutQueue::NextBatch SharedRollouts::next(int64_t step) {
  const std::string what = concat("rollouts of step ", step + 1);
  if (dealt_ || ranks_.size() == 1) {
    ranks_.set_phase(what);
    return queue_->next(step);
  }
  RolloutQueue::NextBatch out;
  const std::string bytes = ranks_.on_first(what, [&] {
    out = queue_->next(step);
    return pack_groups(out.groups);
  });
  if (!ranks_.is_first())
    out.groups = unpack_groups(bytes, [this](const std::string& id) -> const Task& { return tasks_.task(id); });
  return out;
}

void SharedRollouts::return_batch() {
  if (queue_) queue_->return_batch();
}

}  // namespace hone
