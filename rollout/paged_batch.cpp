#include "rollout/paged_batch.h"

#include <algorithm>

namespace hone {

// The slots and the block table of the parts in one table of the layout.
static KvGroupView group_view(Context& context, Arena& staging, std::span<const Scheduler::ScheduledSequence> parts,
                              size_t table, int64_t block_size) {
  const auto blocks_of = [&](const Scheduler::ScheduledSequence& part) -> const std::vector<int32_t>& {
    return part.sequence->blocks.tables[table];
  };
  size_t widest = 0;  // columns of the block table
  for (const Scheduler::ScheduledSequence& part : parts) widest = std::max(widest, blocks_of(part).size());
  std::vector<int32_t> slots, rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<int32_t>& blocks = blocks_of(parts[i]);
    const int64_t begin = parts[i].sequence->computed, end = begin + parts[i].width();
    for (int64_t p = begin; p < end; ++p)
      slots.push_back(static_cast<int32_t>(blocks[static_cast<size_t>(p / block_size)] * block_size + p % block_size));
    rows.insert(rows.end(), blocks.begin(), blocks.end());
    rows.resize(widest * (i + 1), 0);
  }
  return {.slots = upload(context, staging, slots),
          .block_table = upload(context, staging, rows).view({std::ssize(parts), static_cast<int64_t>(widest)})};
}

PagedBatch::PagedBatch(Context& context, Arena& staging, const KvStorage& storage,
                       std::span<const Scheduler::ScheduledSequence> parts, int64_t vocab_size)
    : view(storage.view()) {
  std::vector<int32_t> tokens, lengths;
  for (const Scheduler::ScheduledSequence& part : parts) {
    const Sequence& sequence = *part.sequence;
    const auto first = sequence.tokens.begin() + sequence.computed;
    tokens.insert(tokens.end(), first, first + part.count);
    tokens.insert(tokens.end(), part.draft.begin(), part.draft.end());
    lengths.push_back(static_cast<int32_t>(sequence.computed + part.width()));
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
  view.lengths = upload(context, staging, lengths);
  for (size_t table = 0; table < storage.layout().windows.size(); ++table)
    view.groups.push_back(group_view(context, staging, parts, table, storage.block_size()));
}

}  // namespace hone
