#pragma once
// The models whose layers a GPU's benchmarks have the shapes of: Qwen 2.5 with 0.5B and with 1.5B parameters.
#include <cstdint>

namespace hone {

struct BenchModel {
  const char* name;
  int64_t width, heads, kv_heads, head_dim, mlp, vocabulary;
  int64_t projected() const { return (heads + 2 * kv_heads) * head_dim; }
};
inline constexpr BenchModel bench_models[] = {{"0.5B", 896, 14, 2, 64, 4864, 151936},
                                              {"1.5B", 1536, 12, 2, 128, 8960, 151936}};
inline constexpr int64_t bench_tokens = 8192;  // of a micro-batch

}  // namespace hone
