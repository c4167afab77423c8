#include "rollout/paged_batch.h"

#include <algorithm>

namespace hone {

PagedBatch::PagedBatch(Context& context, Arena& staging, const KvStorage& storage,
                       std::span<const Scheduler::ScheduledSequence> parts, int64_t vocab_size)
    : view(storage.view()) {
  const int64_t block_size = storage.block_size();
  size_t widest = 0;  // columns of the table
  for (const Scheduler::ScheduledSequence& part : parts) widest = std::max(widest, part.sequence->blocks.size());
  std::vector<int32_t> tokens, slots, lengths, table;
  for (const Scheduler::ScheduledSequence& part : parts) {
    const Sequence& sequence = *part.sequence;
    const auto first = sequence.tokens.begin() + sequence.computed;
    tokens.insert(tokens.end(), first, first + part.count);
    tokens.insert(tokens.end(), part.draft.begin(), part.draft.end());
    const int64_t end = sequence.computed + part.width();
    for (int64_t p = sequence.computed; p < end; ++p)
      slots.push_back(
          static_cast<int32_t>(sequence.blocks[static_cast<size_t>(p / block_size)] * block_size + p % block_size));
    lengths.push_back(static_cast<int32_t>(end));
    table.insert(table.end(), sequence.blocks.begin(), sequence.blocks.end());
    table.resize(widest * lengths.size(), 0);
  }
  for (int32_t& id : tokens)
    if (id >= vocab_size) id = 0;
  std::vector<BatchPart> packed;
  for (int64_t at = 0; const Scheduler::ScheduledSequence& part : parts) {
    packed.push_back({std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(part.width())),
                      static_cast<int32_t>(part.sequence->computed)});
    at += part.width();
  }
  batch = pack_batch(context, staging, packed);
  view.slots = upload(context, staging, slots);
  view.lengths = upload(context, staging, lengths);
  view.block_table =
      upload(context, staging, table).view({static_cast<int64_t>(lengths.size()), static_cast<int64_t>(widest)});
}

}  // namespace hone
