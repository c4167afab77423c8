// The table of RoPE cosines and sines, with the scalings of Hugging Face (linear, llama3, yarn, longrope).
#include "kernels/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace hone {
namespace {

double plain(const RopeConfig&, std::span<double>) { return 1; }

double linear(const RopeConfig& config, std::span<double> frequencies) {
  for (double& frequency : frequencies) frequency /= config.factor;
  return 1;
}

// Wavelengths above original context / low_freq_factor are stretched by the factor. Those below original context /
// high_freq_factor are kept. Those between are blended.
double llama3(const RopeConfig& config, std::span<double> frequencies) {
  HONE_CHECK(config.original_max_position > 0, "rope scaling llama3: original_max_position_embeddings is missing");
  HONE_CHECK(config.high_freq_factor > config.low_freq_factor, "rope scaling llama3: high_freq_factor ",
             config.high_freq_factor, " is not above low_freq_factor ", config.low_freq_factor);
  for (double& frequency : frequencies) {
    const double turns =
        config.original_max_position * frequency / (2 * std::numbers::pi);  // turns over the original context
    const double keep =
        std::clamp((turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor), 0.0, 1.0);
    frequency *= keep + (1 - keep) / config.factor;
  }
  return 1;
}

// Dimensions with more than beta_fast turns over the original context are kept; those with fewer than beta_slow turns
// are stretched; a linear ramp connects them. The table includes the attention temperature.
double yarn(const RopeConfig& config, std::span<double> frequencies) {
  HONE_CHECK(config.original_max_position > 0, "rope scaling yarn: original_max_position_embeddings is missing");
  const double dim = static_cast<double>(config.dim);
  const auto dim_of_turns = [&](double turns) {
    return dim * std::log(config.original_max_position / (turns * 2 * std::numbers::pi)) / (2 * std::log(config.theta));
  };
  double low = dim_of_turns(config.beta_fast), high = dim_of_turns(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= 1 - stretched + stretched / config.factor;
  }
  if (config.attention_factor > 0) return config.attention_factor;
  const auto temperature = [&](double scale) {
    return config.factor > 1 ? 0.1 * scale * std::log(config.factor) + 1 : 1;
  };
  return config.mscale > 0 && config.mscale_all_dim > 0
             ? temperature(config.mscale) / temperature(config.mscale_all_dim)
             : temperature(1);
}

double longrope(const RopeConfig& config, std::span<double> frequencies) {
  const std::vector<double>& divisors = config.use_long_rope ? config.long_factor : config.short_factor;
  HONE_CHECK(divisors.size() == frequencies.size(),
             "rope scaling longrope: ", config.use_long_rope ? "long_factor" : "short_factor", " has ", divisors.size(),
             " numbers, wants ", frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= divisors[i];
  if (config.attention_factor > 0) return config.attention_factor;
  if (config.factor <= 1) return 1;
  HONE_CHECK(config.original_max_position > 1, "rope scaling longrope: original_max_position_embeddings is ",
             config.original_max_position, "; it must be above 1");
  return std::sqrt(1 + std::log(config.factor) / std::log(config.original_max_position));
}

}  // namespace

Registry<RotaryScaling>& rope_scalings() {
  static Registry<RotaryScaling> registry = [] {
    Registry<RotaryScaling> known("rope scaling");
    known.add("default", plain);
    known.add("linear", linear);
    known.add("llama3", llama3);
    known.add("yarn", yarn);
    known.add("longrope", longrope);
    return known;
  }();
  return registry;
}

void rope_table(Tensor table, const RopeConfig& config) {
  HONE_CHECK(config.dim > 0 && config.dim % 2 == 0, "rope: rotary_dim is ", config.dim,
             "; it must be positive and even");
  HONE_CHECK(config.theta > 1 && config.factor > 0, "rope: rope_theta is ", config.theta, " and factor ", config.factor,
             "; rope_theta must be above 1 and factor above 0");
  HONE_CHECK(table.rank == 2 && table.dim(1) == config.dim && table.device != DeviceKind::cuda, "rope: the table has ",
             table.dim(1), " columns; it must have ", config.dim, " and be in host memory");
  const int64_t half = config.dim / 2;
  std::vector<double> frequencies(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i)
    frequencies[static_cast<size_t>(i)] =
        std::pow(config.theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.dim));
  const double scale = rope_scalings().at(config.scaling)(config, frequencies);
  if (table.device == DeviceKind::meta) return;
  for (int64_t p = 0; p < table.dim(0); ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
      table.row<float>(p)[i] = static_cast<float>(scale * std::cos(angle));
      table.row<float>(p)[half + i] = static_cast<float>(scale * std::sin(angle));
    }
}

}  // namespace hone
