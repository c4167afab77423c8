#pragma once
// PagedBatch: the tokens of scheduled sequences, packed for one forward pass over a paged KV cache.
#include "rollout/kv/kv_storage.h"
#include "rollout/scheduler.h"

namespace hone {

struct PagedBatch {
  Batch batch;
  KvView view;
  // Packs each part's scheduled tokens, then its draft tokens. An id of vocab_size or more is read as 0. Valid until
  // `staging` is released.
  PagedBatch(Context& context, Arena& staging, const KvStorage& storage,
             std::span<const Scheduler::ScheduledSequence> parts, int64_t vocab_size);
};

}  // namespace hone
