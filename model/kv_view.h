#pragma once
// KvView: the KV cache as a model sees it during one call. Plain data; rollout/kv owns the memory.
#include <vector>

#include "core/device/tensor.h"

namespace hone {

struct KvView {
  std::vector<Tensor> k, v;              // per layer: [num_slots, Hk, d]
  std::vector<Tensor> k_scale, v_scale;  // per layer, for e4m3 planes (u8): [num_slots, Hk] f32; else empty
  Tensor slots;                          // [T] i32: slot of each new token
  Tensor block_table;                    // [S, max_blocks] i32
  Tensor lengths;                        // [S] i32: keys of each sequence, new ones included
  int64_t block_size = 0;
  // As PagedKv::prefetchable (kernels/attention/attention.h): no sequence reads keys that this call writes for another.
  bool prefetchable = false;
};

}  // namespace hone
