#pragma once
// KvStorage: the memory of one model's keys and values in a paged cache, a plane of slots for every block of the model.
// Which slots are whose is KvCache's to say; two models that write the same tokens share its blocks, each with planes
// of its own.
#include <vector>

#include "model/model.h"

namespace hone {

class KvStorage {
 public:
  // Memory is taken here, once: 2 * num_blocks(model) * (num_blocks + 1) * block_size * kv heads * head dim, in
  // `dtype`. u8: in e4m3, with an f32 scale for each token and kv head of k and of v.
  KvStorage(Context& context, const ModelShape& shape, DType dtype, int64_t block_size, int64_t num_blocks);

  int64_t block_size() const { return block_size_; }
  // A block that no sequence is ever given: where rows that only fill a batch up write.
  int32_t pad_block() const { return spare_block_; }
  // The keys and values of a block's first tokens into another.
  void copy(int32_t to, int32_t from, int64_t tokens);
  // The planes; the call's own tables are the caller's to add.
  KvView view() const;
  size_t bytes() const { return bytes_.size(); }

 private:
  Context& context_;
  int64_t block_size_;
  int32_t spare_block_;
  Buffer bytes_;
  std::vector<Tensor> k_, v_, k_scale_, v_scale_;
};

}  // namespace hone
