#include "rollout/kv/kv_cache.h"

namespace hone {

// Number of whole blocks in `tokens` tokens.
static int64_t num_blocks_for(int64_t block_size, int64_t tokens) {
  HONE_CHECK(block_size > 0 && tokens >= block_size, "kv cache: kv_cache_tokens is ", tokens, " and kv_block_size ",
             block_size, "; the cache must have at least one block");
  return tokens / block_size;
}

KvCache::KvCache(Context& context, const ModelShape& shape, DType dtype, int64_t block_size, int64_t tokens)
    : storage_(context, shape, dtype, block_size, num_blocks_for(block_size, tokens)) {
  const int64_t blocks = tokens / block_size;
  references_.assign(static_cast<size_t>(blocks), 0);
  evictable_position_.resize(static_cast<size_t>(blocks));
  for (int64_t block = blocks; block-- > 0;) free_.push_back(static_cast<int32_t>(block));
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

void KvCache::invalidate_prefix_cache() {
  prefix_cache_.clear();
  free_.insert(free_.end(), evictable_.begin(), evictable_.end());
  evictable_.clear();
}

int32_t KvCache::copy(int32_t block, int64_t tokens) {
  const int32_t fresh = allocate();
  storage_.copy(fresh, block, tokens);
  for (KvStorage* attached : attached_) attached->copy(fresh, block, tokens);
  return fresh;
}

}  // namespace hone
