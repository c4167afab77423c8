#pragma once
// What a model needs of a KV cache during one call: plain data. rollout/ owns the layers.
#include <vector>

#include "core/device/tensor.h"

namespace hone {

struct KvView {
  std::vector<Tensor> k, v;              // a plane for each layer of the model: [num_slots, Hk, d]
  std::vector<Tensor> k_scale, v_scale;  // of planes in e4m3 (u8): [num_slots, Hk] f32; none of others
  Tensor slots;                          // [T] i32: where each of the call's tokens is written
  Tensor block_table;                    // [S, max_layers] i32
  Tensor lengths;                        // [S] i32: keys of each sequence once the call's own are written
  int64_t block_size = 0;
  bool prefetchable = false;  // what PagedKv says (kernels/attention/attention.h): no sequence reads keys that
                              // another's tokens of the call write
};

}  // namespace hone
