#pragma once
// What a model computes on: T tokens of S sequences packed end to end. The same batch serves training, prefill and
// decode.
#include <cstdint>
#include <span>
#include <vector>

#include "core/device/device.h"

namespace hone {

struct Batch {
  Tensor tokens{};     // [T] i32
  Tensor positions{};  // [T] i32: of each token in its own sequence
  Tensor offsets{};    // [S+1] i32: sequence s is tokens offsets[s] .. offsets[s+1]
  int64_t num_tokens = 0, num_sequences = 0;
  int64_t max_length = 0;     // of the sequences' parts in this batch
  int64_t num_positions = 0;  // one past the largest position
};

// A sequence's part of a batch: tokens that follow `start` earlier ones (in the KV cache; 0 in training).
struct BatchPart {
  std::span<const int32_t> tokens;
  int32_t start = 0;
};

// Packs parts into `arena` (device memory) in one copy; valid until the arena is released below it.
Batch pack_batch(Context& context, Arena& arena, std::span<const BatchPart> parts);
// values as an i32/f32 tensor in `arena`.
Tensor upload(Context& context, Arena& arena, std::span<const int32_t> values);
Tensor upload(Context& context, Arena& arena, std::span<const float> values);
// Several columns in one copy.
std::vector<Tensor> upload(Context& context, Arena& arena, std::initializer_list<std::span<const int32_t>> columns);
// A device tensor of f32 on the host; synchronizes. On meta: zeros.
std::vector<float> download(Context& context, Tensor values);

}  // namespace hone
