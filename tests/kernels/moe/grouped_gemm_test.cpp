#include "kernels/moe/grouped_gemm.h"

#include "core/base/parallel_for.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/moe/experts.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

constexpr int64_t E = 5;

struct Case {
  int64_t tokens, k, capacity, N, K;
};
constexpr Case cases[] = {{0, 2, 0, 8, 8},     {1, 1, 0, 5, 7},     {3, 2, 0, 33, 513}, {60, 2, 0, 31, 65},
                          {60, 2, 20, 31, 65}, {40, 3, 0, 16, 600}, {2, 1, 0, 0, 3},    {2, 1, 0, 4, 0}};

[[maybe_unused]] const bool added = op_cases().add("grouped_gemm_forward", [] {
  for (const Case& c : cases) {
    const Dispatched sorted(random_experts(c.tokens, c.k, E, 1), E, c.capacity);
    const int64_t P = c.tokens * c.k;
    const Floats x = normals({P, c.K}, 2, 1, 3), w = normals({E, c.N, c.K}, 3, 1, 1), y = poisoned({P, c.N}, 2);
    expect_bodies_agree(grouped_gemm_forward, {0, 0}, {.y = y, .x = x, .w = w, .offsets = sorted.offsets});
    const Floats sum = normals({P, c.N}, 4, 1, 2);
    expect_bodies_agree(grouped_gemm_forward, {0, 0},
                        {.y = sum, .x = x, .w = w, .offsets = sorted.offsets, .accumulate = true});
  }
}) && op_cases().add("grouped_gemm_backward_input", [] {
  for (const Case& c : cases) {
    const Dispatched sorted(random_experts(c.tokens, c.k, E, 1), E, c.capacity);
    const int64_t P = c.tokens * c.k;
    const Floats dy = normals({P, c.N}, 2, 1, 3), w = normals({E, c.N, c.K}, 3, 1, 1), dx = poisoned({P, c.K}, 2);
    expect_bodies_agree(grouped_gemm_backward_input, {1e-4, 1e-4},
                        {.dx = dx, .dy = dy, .w = w, .offsets = sorted.offsets});
  }
}) && op_cases().add("grouped_gemm_backward_weight", [] {
  for (const Case& c : cases) {
    const Dispatched sorted(random_experts(c.tokens, c.k, E, 1), E, c.capacity);
    const int64_t P = c.tokens * c.k;
    const Floats dy = normals({P, c.N}, 2, 1, 3), x = normals({P, c.K}, 3, 1, 1), dw = normals({E, c.N, c.K}, 4, 1, 2);
    expect_bodies_agree(grouped_gemm_backward_weight, {1e-4, 1e-4},
                        {.dw = dw, .dy = dy, .x = x, .offsets = sorted.offsets});
    const Floats written = poisoned({E, c.N, c.K}, 2);
    expect_bodies_agree(grouped_gemm_backward_weight, {1e-4, 1e-4},
                        {.dw = {written, false}, .dy = dy, .x = x, .offsets = sorted.offsets});
  }
});

}  // namespace

// Each row has the bits of a dense product with its expert's matrix, whatever the other rows are.
TEST(GroupedGemm, RowsHaveTheBitsOfTheDenseProduct) {
  const int64_t N = 37, K = 700, P = 80;
  const Dispatched sorted(random_experts(P / 2, 2, E, 1), E);
  const Floats x = normals({P, K}, 2), w = normals({E, N, K}, 3);
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    each_cpu_body(grouped_gemm_forward, [&](auto run, const std::string&) {
      Floats y = poisoned({P, N});
      run({.y = y, .x = x, .w = w, .offsets = sorted.offsets});
      for (int64_t e = 0; e < E; ++e)
        for (int32_t r = sorted.offsets[e]; r < sorted.offsets[e + 1]; ++r) {
          Floats alone = poisoned({1, N});
          gemm_forward(cpu(), {.y = alone, .x = x.tensor().rows(r, 1), .w = expert_matrix(w, e)});
          for (int64_t n = 0; n < N; ++n)
            ASSERT_TRUE(same_bits(y[r * N + n], alone[n])) << "row " << r << ", column " << n;
        }
    });
  }
}

TEST(GroupedGemm, GradientIsFiniteDifferences) {
  const int64_t N = 3, K = 4, P = 10;
  const Dispatched sorted(random_experts(P / 2, 2, E, 1), E, 3);
  Floats x = normals({P, K}, 2), w = normals({E, N, K}, 3);
  const Floats dy = normals({P, N}, 4);
  const auto loss = [&] {
    Floats y = poisoned({P, N});
    grouped_gemm_forward(cpu(), {.y = y, .x = x, .w = w, .offsets = sorted.offsets});
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * double{dy[i]};
    return sum;
  };
  Floats dx = poisoned({P, K}), dw({E, N, K});
  grouped_gemm_backward_input(cpu(), {.dx = dx, .dy = dy, .w = w, .offsets = sorted.offsets});
  grouped_gemm_backward_weight(cpu(), {.dw = dw, .dy = dy, .x = x, .offsets = sorted.offsets});
  expect_gradient(loss, x, dx);
  expect_gradient(loss, w, dw);
}

TEST(GroupedGemm, AWrittenGradientOfAnExpertWithoutRowsIsZero) {
  const int64_t N = 33, K = 17, P = 6;
  Ids offsets({E + 1});  // experts 1 and 3 have the rows
  for (int64_t e = 0; e <= E; ++e) offsets[e] = e < 2 ? 0 : e < 4 ? 2 : 6;
  const Floats x = normals({P, K}, 2), dy = normals({P, N}, 4);
  each_cpu_body(grouped_gemm_backward_weight, [&](auto body, const std::string&) {
    Floats written = poisoned({E, N, K}), sum({E, N, K});
    body({.dw = {written, false}, .dy = dy, .x = x, .offsets = offsets});
    body({.dw = sum, .dy = dy, .x = x, .offsets = offsets});
    for (int64_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(written[i], sum[i]) << "element " << i;
      const int64_t e = i / (N * K);
      ASSERT_EQ(written[i] != 0, e == 1 || e == 3) << "element " << i;
    }
  });
}

TEST(GroupedGemm, GradientsDoNotDependOnThreads) {
  const int64_t N = 130, K = 90, P = 120;
  const Dispatched sorted(random_experts(P / 2, 2, E, 1), E);
  const Floats x = normals({P, K}, 2), w = normals({E, N, K}, 3), dy = normals({P, N}, 4);
  const auto run = [&](int threads) {
    set_num_threads(threads);
    Floats dx = poisoned({P, K}), dw({E, N, K});
    grouped_gemm_backward_input(cpu(), {.dx = dx, .dy = dy, .w = w, .offsets = sorted.offsets});
    grouped_gemm_backward_weight(cpu(), {.dw = dw, .dy = dy, .x = x, .offsets = sorted.offsets});
    return std::array{dx, dw};
  };
  const auto one = run(1), two = run(2);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(close(two[i], one[i], {0, 0})) << "output " << i;
}

TEST(GroupedGemm, RefusesOffsetsThatDoNotFitTheRows) {
  const Floats x({4, 3}), w({2, 5, 3}), y({4, 5});
  Ids offsets({3});
  offsets[1] = 2;
  offsets[2] = 5;
  EXPECT_THROW(grouped_gemm_forward(cpu(), {.y = y, .x = x, .w = w, .offsets = offsets}), Error);
  offsets[1] = 4;
  offsets[2] = 3;
  EXPECT_THROW(grouped_gemm_forward(cpu(), {.y = y, .x = x, .w = w, .offsets = offsets}), Error);
}

}  // namespace hone::test
