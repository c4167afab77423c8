#pragma once
// PagedBatch: the tokens of a plan's parts, packed for one forward pass over a paged cache.
#include "rollout/kv/kv_storage.h"
#include "rollout/scheduler.h"

namespace hone {

struct PagedBatch {
  Batch batch;
  KvView view;
  // Of each part its tokens and then those proposed; an id from vocab_size on is read as 0. Valid until `staging` is
  // released.
  PagedBatch(Context& context, Arena& staging, const KvStorage& planes,
             std::span<const Scheduler::ScheduledSequence> parts, int64_t vocab_size);
};

}  // namespace hone
