#pragma once
// KV layer groups: what a model's layers keep of each token in a KV cache. Layers of one group have rows of one shape
// and one sliding window, so that their KV blocks live equally long.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hone {

// A plane is the memory of one layer's keys and values, or of several layers that share them.
struct KvGroupShape {
  int64_t num_kv_heads = 0, key_dim = 0;
  int64_t value_dim = 0;  // 0: the values are the first columns of the key row (the latent of MLA)
  int64_t window = 0;     // a query reads itself and window - 1 tokens before it; 0 = all
  int64_t planes = 0;
  bool operator==(const KvGroupShape&) const = default;
};

// What one layer keeps in a KV cache.
struct KvPlace {
  KvGroupShape shape{};        // without `planes`
  size_t* kv_layer = nullptr;  // the layer's index in KvView::layers; null: it keeps nothing
};

// Numbers the planes of all layers: KvView::layers has the planes of the first group, then those of the second, and so
// on. On entry *kv_layer is any number; layers with the same number share a plane, with the widest of their windows. On
// return it is the index in KvView::layers. Throws Error if layers that share a plane have rows of different shapes.
std::vector<KvGroupShape> assign_kv_layers(std::span<const KvPlace> layers);

}  // namespace hone
