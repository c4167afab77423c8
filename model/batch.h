#pragma once
// Batch: the input of a model, T tokens of S sequences packed end to end. Training, prefill and decode use the same
// type. KvView: the KV cache that a prefill or decode pass reads and writes.
#include <cstdint>
#include <span>
#include <vector>

#include "core/device/device.h"

namespace hone {

struct Batch {
  Tensor tokens{};     // [T] i32
  Tensor positions{};  // [T] i32: position of each token in its sequence
  Tensor offsets{};    // [S+1] i32: sequence s is tokens offsets[s] .. offsets[s+1]
  int64_t num_tokens = 0, num_sequences = 0;
  int64_t max_length = 0;     // most tokens of a sequence in this batch
  int64_t num_positions = 0;  // one past the largest position
};

// The tokens of one sequence in a batch. `start` earlier tokens are in the KV cache (0 in training).
struct BatchPart {
  std::span<const int32_t> tokens;
  int32_t start = 0;
};

// The keys and values of one layer, or of several that share them.
struct LayerKv {
  Tensor k;                 // [num_slots, Hk, key_dim]
  Tensor v;                 // [num_slots, Hk, value_dim]; empty if the values are the first columns of k
  Tensor k_scale, v_scale;  // for e4m3 (u8): [num_slots, Hk] f32; else empty
  size_t group = 0;         // in KvView::groups
};

// The slots of layers that share a block table.
struct KvGroupView {
  Tensor slots;        // [T] i32: slot of each new token
  Tensor block_table;  // [S, max_blocks] i32; the pad block in place of a block that was given back
};

// The KV cache as a model sees it during one call. Plain data; rollout/kv owns the memory.
struct KvView {
  std::vector<LayerKv> layers;  // in the order of Model::kv_groups(): all planes of a group, then those of the next
  std::vector<KvGroupView> groups;
  Tensor lengths;  // [S] i32: keys of each sequence, new ones included
  int64_t block_size = 0;
  // As PagedKv::prefetchable (kernels/attention/attention.h): no sequence reads keys that this call writes for another.
  bool prefetchable = false;
};

// Packs parts into `arena` (device memory) with one copy. The batch is valid until the arena releases that memory.
Batch pack_batch(Context& context, Arena& arena, std::span<const BatchPart> parts);
// Copies values to a new tensor in `arena`.
Tensor upload(Context& context, Arena& arena, std::span<const int32_t> values);
Tensor upload(Context& context, Arena& arena, std::span<const float> values);
// Several columns with one copy.
std::vector<Tensor> upload(Context& context, Arena& arena, std::initializer_list<std::span<const int32_t>> columns);
// Copies an f32 device tensor to the host and synchronizes. On meta: zeros.
std::vector<float> download(Context& context, Tensor values);

}  // namespace hone
