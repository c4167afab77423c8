#include "kernels/moe/grouped_gemm_quantized.h"

#include "core/base/parallel_for.h"
#include "kernels/quant/gemm_quantized.h"
#include "tests/kernels/moe/experts.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"
#include "tests/kernels/quant/quantized.h"

namespace hone::test {
namespace {

constexpr int64_t E = 5;

struct Case {
  int64_t tokens, k, capacity, N, K;
};
constexpr Case cases[] = {{0, 2, 0, 8, 8},     {1, 1, 0, 5, 7},     {3, 2, 0, 33, 513}, {60, 2, 0, 31, 65},
                          {60, 2, 20, 31, 65}, {40, 3, 0, 16, 600}, {2, 1, 0, 0, 3},    {2, 1, 0, 4, 0}};

[[maybe_unused]] const bool added = op_cases().add("grouped_gemm_quantized", [] {
  for (const QuantFormat format : all_quant_formats)
    for (const Case& c : cases) {
      const Dispatched sorted(random_experts(c.tokens, c.k, E, 1), E, c.capacity);
      const int64_t P = c.tokens * c.k;
      const Floats x = normals({P, c.K}, 2, 1, 3), y = poisoned({P, c.N}, 2);
      const Quantized w(format, normals({E * c.N, c.K}, 3));
      expect_bodies_agree(grouped_gemm_quantized, {0, 0},
                          {.y = y, .x = x, .w = as_experts(w, E), .offsets = sorted.offsets});
      const Floats sum = normals({P, c.N}, 4, 1, 2);
      expect_bodies_agree(grouped_gemm_quantized, {0, 0},
                          {.y = sum, .x = x, .w = as_experts(w, E), .offsets = sorted.offsets, .accumulate = true});
    }
});

}  // namespace

TEST(GroupedGemmQuantized, RowsHaveTheBitsOfTheDenseProduct) {
  const int64_t N = 300, K = 70, P = 80;
  const Dispatched sorted(random_experts(P / 2, 2, E, 1), E);
  const Floats x = normals({P, K}, 2);
  for (const QuantFormat format : all_quant_formats) {
    const Quantized rows(format, normals({E * N, K}, 3));
    const QuantizedMatrix w = as_experts(rows, E);
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      each_cpu_body(grouped_gemm_quantized, [&](auto run, const std::string&) {
        Floats y = poisoned({P, N});
        run({.y = y, .x = x, .w = w, .offsets = sorted.offsets});
        for (int64_t e = 0; e < E; ++e)
          for (int32_t r = sorted.offsets[e]; r < sorted.offsets[e + 1]; ++r) {
            Floats alone = poisoned({1, N});
            gemm_quantized(cpu(), {.y = alone, .x = x.tensor().rows(r, 1), .w = expert_matrix(w, e)});
            for (int64_t n = 0; n < N; ++n)
              ASSERT_TRUE(same_bits(y[r * N + n], alone[n])) << "row " << r << ", column " << n;
          }
      });
    }
  }
}

TEST(GroupedGemmQuantized, RefusesScalesAndOffsetsThatDoNotFit) {
  const Floats x({4, 3}), y({4, 5});
  const Quantized rows(QuantFormat::int8, 10, 3);
  Ids offsets({3});
  offsets[1] = 2;
  offsets[2] = 5;
  EXPECT_THROW(grouped_gemm_quantized(cpu(), {.y = y, .x = x, .w = as_experts(rows, 2), .offsets = offsets}), Error);
  offsets[2] = 4;
  QuantizedMatrix w = as_experts(rows, 2);
  grouped_gemm_quantized(cpu(), {.y = y, .x = x, .w = w, .offsets = offsets});
  w.scales = w.scales.view({10});
  EXPECT_THROW(grouped_gemm_quantized(cpu(), {.y = y, .x = x, .w = w, .offsets = offsets}), Error);
}

}  // namespace hone::test
