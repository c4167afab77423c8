#pragma once
// A paged KV cache: planes of slots for every block of the model, handed out in blocks of block_size tokens that sequences may share.
#include <cstdint>
#include <vector>

#include "core/model/model.h"

namespace hone {

class KvCache {
 public:
  // Memory is taken here, once: 2 * num_blocks(model) * (tokens + block_size) * kv heads * head dim, in `dtype`.
  KvCache(Context& context, const ModelShape& shape, DType dtype, int64_t block_size, int64_t tokens);

  int64_t block_size() const { return block_size_; }
  int64_t num_blocks() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }

  // A free block with one reference; there must be one.
  int32_t take();
  // One more, one less reference; the last one frees the block.
  void share(int32_t block);
  void release(int32_t block);
  // Another block with the same keys and values.
  int32_t copy(int32_t block);

  // A block that no sequence is ever given: where rows that only fill a batch up write.
  int64_t spare_block() const { return num_blocks(); }

  // The planes; the call's own tables are the engine's to add.
  KvView view() const;

 private:
  Context& context_;
  int64_t block_size_;
  Buffer bytes_;
  std::vector<Tensor> k_, v_;
  std::vector<int32_t> references_, free_;
};

}  // namespace hone
