#include "rollout/kv/kv_cache.h"

#include <algorithm>

namespace hone {

int64_t BlockTables::held() const {
  int64_t out = size() * std::ssize(tables);
  for (const int64_t count : released) out -= count;
  return out;
}

// Number of whole blocks of one table in `tokens` tokens.
static int64_t num_blocks_for(int64_t block_size, int64_t tokens) {
  HONE_CHECK(block_size > 0 && tokens >= block_size, "kv cache: kv_cache_tokens is ", tokens, " and kv_block_size ",
             block_size, "; the cache must have at least one block");
  return tokens / block_size;
}

KvCache::KvCache(Context& context, KvLayout layout, DType dtype, int64_t block_size, int64_t tokens)
    : storage_(context, layout, dtype, block_size, num_blocks_for(block_size, tokens) * layout.num_tables()),
      prefix_cache_(layout.windows) {
  const int64_t blocks = tokens / block_size * layout.num_tables();
  references_.assign(static_cast<size_t>(blocks), 0);
  evictable_position_.resize(static_cast<size_t>(blocks));
  for (int64_t block = blocks; block-- > 0;) free_.push_back(static_cast<int32_t>(block));
}

int64_t KvCache::missing_blocks(const BlockTables& blocks, int64_t end) const {
  return std::max<int64_t>(0, blocks_for(end) - blocks.size()) * num_tables();
}

int64_t KvCache::missing_blocks_at_peak(const BlockTables& blocks, int64_t tokens, int64_t step) const {
  int64_t out = 0;
  for (size_t table = 0; table < layout().windows.size(); ++table) {
    const int64_t released = blocks.empty() ? 0 : blocks.released[table];
    int64_t most = blocks_for(tokens) - released;
    if (const int64_t bound = layout().max_held_blocks(table, step, block_size()); bound > 0)
      most = std::min(most, bound);
    out += std::max<int64_t>(0, most - (blocks.size() - released));
  }
  return out;
}

void KvCache::extend(BlockTables& blocks, int64_t end) {
  const int64_t missing = missing_blocks(blocks, end);
  if (missing == 0) return;
  HONE_CHECK(free_blocks() >= missing, "kv cache: ", missing, " blocks are needed and ", free_blocks(), " are free");
  blocks.tables.resize(layout().windows.size());
  blocks.released.resize(layout().windows.size());
  // Reserves vector memory first: if it throws, no allocated block is lost.
  const auto count = static_cast<size_t>(blocks_for(end));
  for (std::vector<int32_t>& table : blocks.tables) table.reserve(count);
  for (auto i = static_cast<size_t>(blocks.size()); i < count; ++i)
    for (std::vector<int32_t>& table : blocks.tables) table.push_back(allocate());
}

void KvCache::release_unseen(BlockTables& blocks, int64_t position) {
  for (size_t table = 0; table < blocks.tables.size(); ++table) {
    const int64_t end = std::min(first_needed_block(table, position), blocks.size());
    for (int64_t& next = blocks.released[table]; next < end; ++next) {
      int32_t& block = blocks.tables[table][static_cast<size_t>(next)];
      unref(block);
      block = storage_.pad_block();
    }
  }
}

void KvCache::release(BlockTables& blocks) {
  // Last block first: a cached block is useless once a block before it is evicted.
  for (int64_t i = blocks.size(); i-- > 0;)
    for (size_t table = 0; table < blocks.tables.size(); ++table)
      if (i >= blocks.released[table]) unref(blocks.tables[table][static_cast<size_t>(i)]);
  blocks = {};
}

bool KvCache::fork(BlockTables& to, const BlockTables& from, int64_t tokens) {
  const int64_t full = tokens / block_size(), partial = tokens % block_size();
  to = {};
  if (partial > 0 && free_blocks() < num_tables()) return false;
  to.tables.resize(from.tables.size());
  to.released = from.released;
  for (std::vector<int32_t>& table : to.tables) table.reserve(static_cast<size_t>(full) + 1);
  for (size_t table = 0; table < from.tables.size(); ++table) {
    const std::vector<int32_t>& blocks = from.tables[table];
    for (int64_t i = 0; i < full; ++i) {
      if (i >= from.released[table]) ref(blocks[static_cast<size_t>(i)]);
      to.tables[table].push_back(blocks[static_cast<size_t>(i)]);
    }
    if (partial > 0) to.tables[table].push_back(copy(blocks[static_cast<size_t>(full)], partial));
  }
  return true;
}

KvCache::PrefixMatch KvCache::match_prefix(BlockTables& to, uint64_t root, std::span<const int32_t> tokens,
                                           int64_t max_blocks) {
  const size_t tables = layout().windows.size();
  const auto size = static_cast<size_t>(block_size());
  std::vector<const PrefixCache::Entry*> chain;
  std::vector<int64_t> unbroken(tables);  // by table: how many entries at the end of the chain have a block
  PrefixMatch match{.id = root};
  uint64_t parent = root;
  for (int64_t length = 1; length <= max_blocks; ++length) {
    const PrefixCache::Entry* entry = prefix_cache_.find(parent, tokens.subspan(chain.size() * size, size));
    if (!entry) break;
    chain.push_back(entry);
    parent = entry->id;
    bool complete = true;
    for (size_t table = 0; table < tables; ++table) {
      unbroken[table] = entry->blocks[table] >= 0 ? unbroken[table] + 1 : 0;
      complete = complete && unbroken[table] >= length - first_needed_block(table, length * block_size());
    }
    if (complete) match = {.blocks = length, .id = parent};
  }
  if (match.blocks == 0) return match;
  BlockTables found{.tables = std::vector<std::vector<int32_t>>(tables), .released = {}};
  for (size_t table = 0; table < tables; ++table) {
    found.released.push_back(first_needed_block(table, match.blocks * block_size()));
    found.tables[table].assign(static_cast<size_t>(match.blocks), storage_.pad_block());
  }
  for (size_t table = 0; table < tables; ++table)
    for (auto i = static_cast<size_t>(found.released[table]); i < static_cast<size_t>(match.blocks); ++i) {
      found.tables[table][i] = chain[i]->blocks[table];
      ref(found.tables[table][i]);
    }
  to = std::move(found);
  return match;
}

uint64_t KvCache::cache_block(const BlockTables& blocks, int64_t index, uint64_t parent,
                              std::span<const int32_t> tokens) {
  std::vector<int32_t> of_tables;
  for (size_t table = 0; table < blocks.tables.size(); ++table)
    of_tables.push_back(index < blocks.released[table] ? -1 : blocks.tables[table][static_cast<size_t>(index)]);
  return prefix_cache_.add(of_tables, parent, tokens).id;
}

void KvCache::invalidate_prefix_cache() {
  prefix_cache_.clear();
  free_.insert(free_.end(), evictable_.begin(), evictable_.end());
  evictable_.clear();
}

void KvCache::free_memory() {
  HONE_CHECK(free_blocks() == num_blocks(), "kv cache: ", num_blocks() - free_blocks(), " of ", num_blocks(),
             " blocks belong to sequences, so its memory cannot be freed");
  invalidate_prefix_cache();
  storage_.free_memory();
  for (KvStorage* attached : attached_) attached->free_memory();
}

void KvCache::allocate_memory() {
  storage_.allocate_memory();
  for (KvStorage* attached : attached_) attached->allocate_memory();
}

int32_t KvCache::allocate() {
  HONE_CHECK(free_blocks() > 0, "kv cache: no block is free");
  if (free_.empty()) {
    prefix_cache_.evict(evictable_.front());
    free_.push_back(evictable_.front());
    evictable_.pop_front();
  }
  const int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

void KvCache::ref(int32_t block) {
  if (references_[static_cast<size_t>(block)]++ == 0) evictable_.erase(evictable_position_[static_cast<size_t>(block)]);
}

void KvCache::unref(int32_t block) {
  if (--references_[static_cast<size_t>(block)] > 0) return;
  if (prefix_cache_.has(block))
    evictable_position_[static_cast<size_t>(block)] = evictable_.insert(evictable_.end(), block);
  else
    free_.push_back(block);
}

int32_t KvCache::copy(int32_t block, int64_t tokens) {
  const int32_t fresh = allocate();
  storage_.copy(fresh, block, tokens);
  for (KvStorage* attached : attached_) attached->copy(fresh, block, std::min(tokens, attached->block_size()));
  return fresh;
}

void KvCache::attach_storage(KvStorage& attached) {
  HONE_CHECK(
      layout().windows == std::vector<int64_t>{0} && attached.layout().windows == layout().windows,
      "kv cache: a proposer shares block numbers only if it and the model have one block table without a window");
  attached_.push_back(&attached);
}

}  // namespace hone
