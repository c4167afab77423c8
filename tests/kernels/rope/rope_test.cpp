#include "kernels/rope/rope.h"

#include <numbers>

#include "tests/kernels/op_check.h"
#include "tests/support/npy.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

Floats table_of(const RopeConfig& config, int64_t positions) {
  Floats table = poisoned({positions, config.dim});
  rope_table(table, config);
  return table;
}

}  // namespace

TEST(Rotary, HoldsCosinesThenSines) {
  const Floats table = table_of({.dim = 6, .theta = 1000}, 40);
  for (int64_t p = 0; p < 40; ++p)
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p) / std::pow(10.0, static_cast<double>(i));
      EXPECT_NEAR(table[p * 6 + i], std::cos(angle), 1e-7);
      EXPECT_NEAR(table[p * 6 + 3 + i], std::sin(angle), 1e-7);
    }
}

TEST(Rotary, LinearScalingSlowsPositions) {
  const Floats plain = table_of({.dim = 8}, 10), slow = table_of({.dim = 8, .scaling = "linear", .factor = 4}, 37);
  for (int64_t p = 0; p < 10; ++p)
    for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(plain[p * 8 + i], slow[4 * p * 8 + i], 1e-6);
}

// The frequency of pair i, from the table at position 1.
double frequency(const Floats& table, int64_t dim, int64_t i) {
  return std::atan2(table[dim + dim / 2 + i], table[dim + i]);
}

TEST(Rotary, Llama3KeepsShortWavesAndStretchesLongOnes) {
  const RopeConfig plain{.dim = 16, .theta = 10000}, scaled{.dim = 16,
                                                            .theta = 10000,
                                                            .scaling = "llama3",
                                                            .factor = 8,
                                                            .original_max_position = 64,
                                                            .low_freq_factor = 1,
                                                            .high_freq_factor = 4};
  const Floats a = table_of(plain, 2), b = table_of(scaled, 2);
  for (int64_t i = 0; i < 8; ++i) {
    const double before = frequency(a, 16, i), ratio = frequency(b, 16, i) / before,
                 turns = 64 * before / (2 * std::numbers::pi);
    if (turns > 4)
      EXPECT_NEAR(ratio, 1, 1e-5);
    else if (turns < 1)
      EXPECT_NEAR(ratio, 1.0 / 8, 1e-3);
    else
      EXPECT_TRUE(ratio > 1.0 / 8 && ratio < 1) << ratio;
  }
}

TEST(Rotary, YarnScalesTheTableByItsTemperature) {
  RopeConfig config{.dim = 8, .scaling = "yarn", .factor = 4, .original_max_position = 32};
  EXPECT_NEAR(table_of(config, 1)[0], 0.1 * std::log(4.0) + 1, 1e-6);
  config.mscale = 0.5, config.mscale_all_dim = 0.25;
  EXPECT_NEAR(table_of(config, 1)[0], (0.05 * std::log(4.0) + 1) / (0.025 * std::log(4.0) + 1), 1e-6);
  config.attention_factor = 1.5;
  EXPECT_NEAR(table_of(config, 1)[0], 1.5, 1e-6);
}

TEST(Rotary, RefusesWhatItCannotDo) {
  EXPECT_THROW(table_of({.dim = 7}, 2), Error);
  EXPECT_THROW(table_of({.dim = 8, .scaling = "lama3"}, 2), Error);
  EXPECT_THROW(table_of({.dim = 8, .scaling = "llama3", .factor = 2}, 2), Error);
  EXPECT_THROW(table_of({.dim = 8, .scaling = "linear", .factor = 0}, 2), Error);
}

TEST(Rotary, TablesMatchVllm) {
  HONE_SHARED_OR_SKIP(llama3, "data/parity/vllmcpp_ops/long_rope_llama3_neox_f32_bands/cos_sin_cache.npy");
  HONE_SHARED_OR_SKIP(yarn, "data/parity/vllmcpp_ops/long_rope_yarn_neox_f32_truncate/cos_sin_cache.npy");
  const RopeConfig llama3_config{.dim = 16,
                                 .scaling = "llama3",
                                 .factor = 4,
                                 .original_max_position = 32,
                                 .low_freq_factor = 1,
                                 .high_freq_factor = 4};
  EXPECT_TRUE(close(table_of(llama3_config, 128), read_npy(llama3).values, {1e-5, 1e-5}));
  EXPECT_TRUE(close(table_of({.dim = 8, .scaling = "yarn", .factor = 4, .original_max_position = 32}, 128),
                    read_npy(yarn).values, {1e-5, 1e-5}));
}

}  // namespace hone::test
