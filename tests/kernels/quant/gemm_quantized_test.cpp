#include "kernels/quant/gemm_quantized.h"

#include "core/base/parallel_for.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"
#include "tests/kernels/quant/quantized.h"

namespace hone::test {
namespace {

struct Shape {
  int64_t M, N, K;
};
constexpr Shape shapes[] = {{1, 1, 1},      {0, 5, 7},      {3, 5, 7}, {1, 300, 513}, {17, 31, 65},
                            {40, 270, 129}, {65, 97, 1100}, {2, 0, 3}, {3, 4, 0}};

}  // namespace

// The definition: gemm_forward on the numbers, then scale, bias and residual, each rounded.
TEST(GemmQuantized, IsTheProductOfTheNumbersTimesTheScales) {
  for (const QuantFormat format : all_quant_formats)
    for (const auto& [M, N, K] : shapes) {
      const Floats x = normals({M, K}, 1, 1, 3), bias = normals({N}, 3), residual = normals({M, N}, 4, 1, 2);
      const Quantized w(format, normals({N, K}, 2), 1);
      Floats sums = poisoned({M, N}), expected = poisoned({M, N});
      gemm_forward(cpu(), {.y = sums, .x = x, .w = w.numbers()});
      for (int64_t i = 0; i < M * N; ++i) {
        const float scaled = sums[i] * w.scales[i % N], biased = scaled + bias[i % N];
        expected[i] = biased + residual[i];
      }
      each_cpu_body(gemm_quantized, [&](auto run, const std::string&) {
        Floats y = poisoned({M, N}, 5);
        if (!run({.y = y, .x = x, .w = w, .bias = bias, .residual = residual})) return;
        EXPECT_TRUE(close(y, expected, {0, 0})) << M << " x " << N << " x " << K;
      });
    }
}

[[maybe_unused]] const bool added = op_cases().add("gemm_quantized", [] {
  for (const QuantFormat format : all_quant_formats)
    for (const auto& [M, N, K] : shapes) {
      const Floats x = normals({M, K}, 11, 1, 3), bias = normals({N}, 13), residual = normals({M, N}, 14, 1, 2);
      const Quantized w(format, normals({N, K}, 12), 2);
      Floats y = poisoned({M, N}, 5);
      expect_bodies_agree(gemm_quantized, {0, 0}, {.y = y, .x = x, .w = w, .bias = bias, .residual = residual});
      expect_bodies_agree(gemm_quantized, {0, 0}, {.y = y, .x = x, .w = w, .bias = bias});
      expect_bodies_agree(gemm_quantized, {0, 0}, {.y = y, .x = x, .w = w, .residual = residual});
      expect_bodies_agree(gemm_quantized, {0, 0}, {.y = y, .x = x, .w = w});
    }
});

TEST(GemmQuantized, ResidualMayBeTheOutput) {
  const Floats x = normals({9, 40}, 1), residual = normals({9, 335}, 3);
  const Quantized w(QuantFormat::fp8, normals({335, 40}, 2));
  each_cpu_body(gemm_quantized, [&](auto run, const std::string&) {
    Floats apart = poisoned({9, 335}), in_place = residual;
    if (!run({.y = apart, .x = x, .w = w, .residual = residual}) ||
        !run({.y = in_place, .x = x, .w = w, .residual = in_place}))
      return;
    EXPECT_TRUE(close(in_place, apart, {0, 0}));
  });
}

TEST(GemmQuantized, RowsDoNotDependOnTheBatch) {
  const int64_t N = 277, K = 703, most = 40;
  const Floats x = normals({most, K}, 1, 1, 7), bias = normals({N}, 3);
  const Quantized w(QuantFormat::int8, normals({N, K}, 2));
  Floats whole = poisoned({most, N});
  set_num_threads(1);
  gemm_quantized(cpu(), {.y = whole, .x = x, .w = w, .bias = bias});
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (int64_t M = 1; M <= most; M += 3) {
      const int64_t first = (M * 31) % (most - M + 1);
      Floats part = poisoned({M, N}, 3);
      gemm_quantized(cpu(), {.y = part, .x = x.tensor().rows(first, M), .w = w, .bias = bias});
      for (int64_t i = 0; i < part.size(); ++i)
        ASSERT_TRUE(same_bits(part[i], whole[first * N + i])) << M << " rows, " << threads << " threads, element " << i;
    }
  }
}

TEST(GemmQuantized, RefusesShapesThatDisagree) {
  const Quantized w(QuantFormat::int8, 4, 5);
  EXPECT_THROW(gemm_quantized(cpu(), {.y = Floats({2, 4}), .x = Floats({2, 3}), .w = w}), Error);
  EXPECT_THROW(gemm_quantized(cpu(), {.y = Floats({2, 4}), .x = Floats({2, 5}), .w = w, .bias = Floats({3})}), Error);
}

}  // namespace hone::test
