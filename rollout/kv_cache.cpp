#include "rollout/kv_cache.h"

namespace hone {

KvCache::KvCache(Context& context, const ModelShape& shape, DType dtype, int64_t block_size, int64_t tokens)
    : context_(context), block_size_(block_size) {
  HONE_CHECK(block_size > 0 && tokens >= block_size, "kv cache: ", tokens, " tokens in blocks of ", block_size,
             "; kv_cache_tokens must hold at least one block");
  const int64_t blocks = tokens / block_size, slots = (blocks + 1) * block_size;
  const size_t plane = static_cast<size_t>(slots * shape.num_kv_heads * shape.head_dim) * size_of(dtype);
  bytes_ = Buffer(context.device(), plane * 2 * static_cast<size_t>(shape.num_blocks));
  const auto plane_at = [&](int64_t i) {
    char* data = bytes_.data() ? static_cast<char*>(bytes_.data()) + static_cast<size_t>(i) * plane : nullptr;
    return Tensor(data, dtype, context.kind(), {slots, shape.num_kv_heads, shape.head_dim});
  };
  for (int64_t i = 0; i < shape.num_blocks; ++i) {
    k_.push_back(plane_at(2 * i));
    v_.push_back(plane_at(2 * i + 1));
  }
  references_.assign(static_cast<size_t>(blocks), 0);
  idle_place_.resize(static_cast<size_t>(blocks));
  for (int64_t block = blocks; block-- > 0;) free_.push_back(static_cast<int32_t>(block));
}

int32_t KvCache::take() {
  HONE_CHECK(free_blocks() > 0, "kv cache: no block is free");
  if (free_.empty()) {
    prefixes_.forget(idle_.front());
    free_.push_back(idle_.front());
    idle_.pop_front();
  }
  const int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

void KvCache::share(int32_t block) {
  if (references_[static_cast<size_t>(block)]++ == 0) idle_.erase(idle_place_[static_cast<size_t>(block)]);
}

void KvCache::release(int32_t block) {
  if (--references_[static_cast<size_t>(block)] > 0) return;
  if (prefixes_.has(block))
    idle_place_[static_cast<size_t>(block)] = idle_.insert(idle_.end(), block);
  else
    free_.push_back(block);
}

void KvCache::forget_names() {
  prefixes_.clear();
  free_.insert(free_.end(), idle_.begin(), idle_.end());
  idle_.clear();
}

int32_t KvCache::copy(int32_t block) {
  const int32_t fresh = take();
  for (const auto* planes : {&k_, &v_})
    for (const Tensor& plane : *planes) context_.copy(plane.rows(fresh * block_size_, block_size_), plane.rows(block * block_size_, block_size_));
  return fresh;
}

KvView KvCache::view() const {
  KvView out;
  out.k = k_;
  out.v = v_;
  out.block_size = block_size_;
  return out;
}

}  // namespace hone
