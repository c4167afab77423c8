#include "kernels/attention/latent/head_gemm.h"

#include "core/base/parallel_for.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

struct Case {
  int64_t tokens, heads, N, K, x_extra = 0, y_extra = 0, w_gap = 0;
};
constexpr Case cases[] = {
    {1, 1, 5, 7}, {0, 2, 4, 4}, {3, 4, 12, 24, 8, 8, 10 * 24}, {40, 3, 33, 513, 1, 2}, {9, 2, 1, 1}};

[[maybe_unused]] const bool added = op_cases().add("head_gemm", [] {
  for (const Case& c : cases)
    for (const bool transposed : {false, true}) {
      const int64_t inputs = transposed ? c.N : c.K, outputs = transposed ? c.K : c.N;
      const Floats x = normals({c.tokens, c.heads, inputs + c.x_extra}, 2, 1, 3),
                   w = normals({c.heads, c.N, c.K}, 3, 1, c.w_gap),
                   y = normals({c.tokens, c.heads, outputs + c.y_extra}, 4, 1, 2);
      expect_bodies_agree(head_gemm, {0, 0}, {.y = y, .x = x, .w = w, .transposed = transposed});
    }
}) && op_cases().add("head_gemm_weight", [] {
  for (const Case& c : cases) {
    const Floats a = normals({c.tokens, c.heads, c.N + c.x_extra}, 2, 1, 3),
                 b = normals({c.tokens, c.heads, c.K + c.y_extra}, 3, 1, 1),
                 dw = normals({c.heads, c.N, c.K}, 4, 1, c.w_gap);
    expect_bodies_agree(head_gemm_weight, {1e-4, 1e-4}, {.dw = dw, .a = a, .b = b});
  }
});

// A token's numbers are those of a call with this token alone, at any number of threads.
TEST(HeadGemm, RowsDoNotDependOnTheCall) {
  const Floats x = normals({50, 3, 40}, 1), w = normals({3, 40, 20}, 2);
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    Floats y = poisoned({50, 3, 20});
    head_gemm(cpu(), {.y = y, .x = x, .w = w, .transposed = true});
    for (int64_t t = 0; t < 50; ++t) {
      Floats alone = poisoned({1, 3, 20});
      head_gemm(cpu(), {.y = alone, .x = x.tensor().rows(t, 1), .w = w, .transposed = true});
      for (int64_t i = 0; i < 60; ++i) ASSERT_TRUE(same_bits(y[t * 60 + i], alone[i])) << t << ", " << i;
    }
  }
}

TEST(HeadGemm, GradientsAreFiniteDifferences) {
  for (const bool transposed : {false, true}) {
    const int64_t T = 4, H = 2, N = 3, K = 5, inputs = transposed ? N : K, outputs = transposed ? K : N;
    Floats x = normals({T, H, inputs}, 1), w = normals({H, N, K}, 2);
    const Floats dy = normals({T, H, outputs}, 3);
    const auto loss = [&] {
      const Floats y = poisoned({T, H, outputs});
      head_gemm(cpu(), {.y = y, .x = x, .w = w, .transposed = transposed});
      double sum = 0;
      for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * double{dy[i]};
      return sum;
    };
    const Floats dx = poisoned({T, H, inputs}), dw({H, N, K});
    head_gemm(cpu(), {.y = dx, .x = dy, .w = w, .transposed = !transposed});
    head_gemm_weight(cpu(), {.dw = dw, .a = transposed ? x : dy, .b = transposed ? dy : x});
    expect_gradient(loss, x, dx);
    expect_gradient(loss, w, dw);
  }
}

TEST(HeadGemm, RefusesHeadsThatAreTooNarrow) {
  const Floats x({2, 3, 4}), y({2, 3, 5}), w({3, 5, 6});
  EXPECT_THROW(head_gemm(cpu(), {.y = y, .x = x, .w = w}), Error);
  EXPECT_THROW(head_gemm_weight(cpu(), {.dw = w, .a = x, .b = y}), Error);
}

}  // namespace
}  // namespace hone::test
