#pragma once
// A paged KV cache, handed out in blocks of block_size tokens that sequences may share. A full block may be named by
// its tokens and those before them: it keeps them when nobody holds it, until its memory is wanted, the longest unused
// first.
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "rollout/kv/kv_storage.h"
#include "rollout/kv/prefix_cache.h"

namespace hone {

class KvCache {
 public:
  // Room for so many tokens, in whole blocks, of a model of this shape.
  KvCache(Context& context, const ModelShape& shape, DType dtype, int64_t block_size, int64_t tokens);

  int64_t block_size() const { return planes_.block_size(); }
  int64_t num_blocks() const { return static_cast<int64_t>(references_.size()); }
  // Those that nobody holds, named ones too.
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size() + evictable_.size()); }
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_size() - 1) / block_size(); }

  // A free block with one reference; there must be one. A named one is forgotten for it where no other is left.
  int32_t allocate();
  // One more reference, of a block that is held or named; one less: the last one frees the block.
  void ref(int32_t block);
  void unref(int32_t block);
  // Another block with the same keys and values of its first tokens, in all planes.
  int32_t copy(int32_t block, int64_t tokens);

  // The named blocks. name() is of a block that is held, full, and never written again; it returns the name that the
  // next block's parent is, which is another block's where that one holds the same.
  const PrefixCache& prefixes() const { return prefixes_; }
  uint64_t cache_block(int32_t block, uint64_t parent, std::span<const int32_t> tokens) {
    return prefixes_.add(block, parent, tokens).name;
  }
  // Keys and values of weights that are no more: no block that was named, or that follows one that was begun before, is
  // found from now on.
  void invalidate_prefix_cache();

  // The model's keys and values, and those of another model that computes the same tokens: `others` has num_blocks()
  // blocks and outlives the cache's use.
  const KvStorage& planes() const { return planes_; }
  void attach_storage(KvStorage& others) { joined_.push_back(&others); }

 private:
  KvStorage planes_;
  std::vector<KvStorage*> joined_;
  std::vector<int32_t> references_, free_;
  PrefixCache prefixes_;
  std::list<int32_t> evictable_;  // named, and held by nobody: the longest unused first
  std::vector<std::list<int32_t>::iterator> idle_place_;
};

}  // namespace hone
