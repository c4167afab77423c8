#pragma once
// RoPE settings in GGUF: the keys rope.*, and the tensor rope_freqs.weight of Llama 3.1's scaling.
#include <vector>

#include "model/io/gguf_architecture.h"

namespace hone {

// Sets rope_theta and rope_scaling of config.json.
void read_gguf_rope(const GgufKeys& keys, int64_t head_dim, Json& config);
// Writes the keys for config.json's settings, and Llama 3.1's factors as the tensor rope_freqs.weight.
void write_gguf_rope(const Json& config, int64_t head_dim, GgufWriter& out);

}  // namespace hone
