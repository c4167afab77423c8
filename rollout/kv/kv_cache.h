#pragma once
// KvCache: a paged KV cache. A sequence has a block table for each table of the layout; all tables take blocks of
// block_size tokens from one pool. Sequences share blocks by reference counts. A full block can be added to the prefix
// cache: without references it keeps its contents until its memory is needed, and is then evicted, least recently used
// first. release_unseen() frees the blocks of tables with a window that no later query of the sequence sees.
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "rollout/kv/kv_storage.h"
#include "rollout/kv/prefix_cache.h"

namespace hone {

// The blocks of one sequence, by table and in the order of its tokens. All tables have the same length.
struct BlockTables {
  std::vector<std::vector<int32_t>> tables;
  std::vector<int64_t> released;  // by table: number of first blocks that are freed; they are the pad block there

  bool empty() const { return tables.empty(); }
  int64_t size() const { return empty() ? 0 : std::ssize(tables.front()); }
  int64_t held() const;  // blocks of all tables that are not freed
};

// One thread.
class KvCache {
 public:
  // Allocates the blocks that hold `tokens` tokens in all tables, rounded down to whole blocks.
  KvCache(Context& context, KvLayout layout, DType dtype, int64_t block_size, int64_t tokens);

  const KvLayout& layout() const { return storage_.layout(); }
  int64_t block_size() const { return storage_.block_size(); }
  int64_t num_tables() const { return layout().num_tables(); }
  int64_t num_blocks() const { return static_cast<int64_t>(references_.size()); }
  // Blocks without references, cached ones included.
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size() + evictable_.size()); }
  // Blocks of one table.
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_size() - 1) / block_size(); }

  // Blocks of all tables that tokens [0, end) of the sequence lack.
  int64_t missing_blocks(const BlockTables& blocks, int64_t end) const;
  // Blocks that the sequence lacks at its peak: while `tokens` of its tokens are computed in passes of at most `step`
  // tokens, and release_unseen() is called between them.
  int64_t missing_blocks_at_peak(const BlockTables& blocks, int64_t tokens, int64_t step) const;
  // Allocates the blocks that tokens [0, end) lack; throws if too few are free.
  void extend(BlockTables& blocks, int64_t end);
  // Frees the blocks that no query at `position` or later sees. The sequence must not compute earlier tokens
  // again.
  void release_unseen(BlockTables& blocks, int64_t position);
  // Frees all blocks.
  void release(BlockTables& blocks);
  // Makes `to` the blocks of the first `tokens` tokens of `from`, the next query being at `tokens` or later. Full
  // blocks are shared; the partial one is copied. Returns false if too few blocks are free for the copies.
  bool fork(BlockTables& to, const BlockTables& from, int64_t tokens);

  // The blocks that a sequence begins with.
  struct PrefixMatch {
    int64_t blocks = 0;  // of each table
    uint64_t id = 0;     // of the last one; the root if there is none
  };
  uint64_t prefix_root(int64_t adapter) { return prefix_cache_.root(adapter); }
  // Finds the cached blocks of a sequence's first tokens, at most max_blocks of each table, and references them in
  // `to`, which must be empty. The match is the longest for which all tables have the blocks that the next query sees.
  PrefixMatch match_prefix(BlockTables& to, uint64_t root, std::span<const int32_t> tokens, int64_t max_blocks);
  // Adds the sequence's block `index` of each table to the prefix cache. The blocks must be full and must not be
  // written again. tokens: those of the block. parent: the id of the block before. Returns the id of the entry.
  uint64_t cache_block(const BlockTables& blocks, int64_t index, uint64_t parent, std::span<const int32_t> tokens);
  // Drops all cached prefixes, because the weights changed. Sequences that began before cannot add to the new cache.
  void invalidate_prefix_cache();
  const PrefixCache& prefix_cache() const { return prefix_cache_; }

  // Single blocks. allocate() returns a free block with one reference and throws if none is free; it evicts a cached
  // block only if no other is free. ref() adds a reference to a block that is referenced or cached; unref() drops one,
  // and the last one frees the block.
  int32_t allocate();
  void ref(int32_t block);
  void unref(int32_t block);
  // Allocates a block and copies the keys and values of the first `tokens` tokens to it, in all attached storages.
  int32_t copy(int32_t block, int64_t tokens);

  // Frees the memory of all storages, attached ones too, and drops the prefix cache. No sequence may hold a block, and
  // the device must have done all passes. allocate_memory() takes it again; blocks may be allocated before.
  void free_memory();
  void allocate_memory();

  // The keys and values of the model.
  const KvStorage& storage() const { return storage_; }
  // Attaches what a proposer keeps of the same tokens, such as the keys and values of a draft model: copy() copies it,
  // too. It must have num_blocks() blocks and outlive the use of the cache. Its blocks may have fewer slots than
  // block_size(), if it keeps something of the last tokens of a block only. Both must have one table without a window.
  void attach_storage(KvStorage& attached);

 private:
  int64_t first_needed_block(size_t table, int64_t position) const {
    return layout().first_needed_block(table, position, block_size());
  }

  KvStorage storage_;
  std::vector<KvStorage*> attached_;
  std::vector<int32_t> references_, free_;
  PrefixCache prefix_cache_;
  std::list<int32_t> evictable_;  // cached blocks without references, least recently used first
  std::vector<std::list<int32_t>::iterator> evictable_position_;  // by block
};

}  // namespace hone
