#pragma once
// KvStorage: the memory of one model's keys and values in a paged cache. Each plane has K [num_slots, Hk, key_dim] and
// V [num_slots, Hk, value_dim] (LayerKv). KvCache decides which sequence uses which block. Two models that compute the
// same tokens share its block numbers, each with a storage of its own.
#include <vector>

#include "model/batch.h"
#include "rollout/kv/kv_layout.h"

namespace hone {

class KvStorage {
 public:
  // Allocates (num_blocks + 1) * block_size slots of all planes. u8 means e4m3 with an f32 scale for each token and KV
  // head of K and of V.
  KvStorage(Context& context, KvLayout layout, DType dtype, int64_t block_size, int64_t num_blocks);

  const KvLayout& layout() const { return layout_; }

  int64_t block_size() const { return block_size_; }
  // The block that padding rows write to; no sequence owns it.
  int32_t pad_block() const { return pad_block_; }
  // Copies the keys and values of the first `tokens` tokens of block `from` to block `to`.
  void copy(int32_t to, int32_t from, int64_t tokens);
  // Frees the memory, or allocates it again with undefined contents; tensors of view() get other addresses. The device
  // must have done all passes.
  void free_memory();
  void allocate_memory();
  // The tensors; LayerKv::group is the layer's block table. The caller adds the slots and block tables, and the lengths
  // of its pass.
  KvView view() const;
  size_t bytes() const { return bytes_.size(); }

 private:
  Context& context_;
  KvLayout layout_;
  int64_t block_size_;
  int32_t pad_block_;
  size_t size_ = 0;  // of bytes_ while it is allocated
  Buffer bytes_;
  std::vector<LayerKv> planes_;
};

}  // namespace hone
