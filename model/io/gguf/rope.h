#pragma once
// RoPE settings in GGUF: the keys rope.*, and the tensor rope_freqs.weight of Llama 3.1's scaling.
#include <vector>

#include "model/io/gguf/architecture.h"

namespace hone {

// What an architecture has besides.
struct GgufRopeOptions {
  bool longrope = false;     // it reads and writes longrope's factors itself
  bool untruncated = false;  // the bounds of YaRN's ramp are not rounded (truncate = false), which GGUF cannot express
  bool mscale = false;       // the scale of attention has YaRN's temperature (mscale, mscale_all_dim; DeepSeek)
};

// Sets rope_theta and rope_scaling of config.json. rotary_dim: dimensions of a head that rotate.
void read_gguf_rope(const GgufKeys& keys, int64_t rotary_dim, Json& config, const GgufRopeOptions& options = {});
// Writes the keys for config.json's settings, and Llama 3.1's factors as the tensor rope_freqs.weight.
void write_gguf_rope(const Json& config, int64_t rotary_dim, GgufWriter& out, const GgufRopeOptions& options = {});

// The numbers of a tensor of RoPE factors: one for each pair of dimensions, all positive.
std::vector<float> read_rope_factors(const GgufTensor& tensor, const GgufKeys& keys, int64_t rotary_dim);

}  // namespace hone
