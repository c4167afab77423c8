#pragma once
// Rotary position tables (Su et al. 2021) and their scalings for longer contexts, by the names of config.json's
// rope_scaling and rope_parameters.
#include <span>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/device/tensor.h"

namespace hone {

struct RopeConfig {
  int64_t dim = 0;  // rotary_dim: even
  double theta = 10000;
  std::string scaling = "default";  // a name of rope_scalings()
  double factor = 1;
  double original_max_position = 0;                             // original_max_position_embeddings
  double low_freq_factor = 1, high_freq_factor = 4;             // llama3
  double beta_fast = 32, beta_slow = 1;                         // yarn
  double attention_factor = 0, mscale = 0, mscale_all_dim = 0;  // yarn; 0 = not set
  bool truncate = true;                                         // yarn: the ramp's bounds are rounded to integers
  // longrope: [dim / 2] divisors of the frequencies, for all positions: short_factor, or long_factor with
  // use_long_rope.
  std::vector<double> short_factor{}, long_factor{};
  bool use_long_rope = false;
};

// Changes the frequencies theta^(-2i/dim) in place. Returns the factor on cosines and sines, 1 for most scalings.
using RotaryScaling = double (*)(const RopeConfig& config, std::span<double> frequencies);
// default, linear (Chen et al. 2023), llama3 (Llama 3.1), yarn (Peng et al. 2023), longrope (Ding et al. 2024) with one
// set of divisors: in transformers they depend on the text's length, so a token's result would, too.
Registry<RotaryScaling>& rope_scalings();

// Writes a host table f32 [positions, dim]: dim / 2 cosines, then dim / 2 sines, of each position. Computed in double.
void rope_table(Tensor table, const RopeConfig& config);

}  // namespace hone
