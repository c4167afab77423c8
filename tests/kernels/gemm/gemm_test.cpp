#include "kernels/gemm/gemm.h"

#include "core/base/parallel_for.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

struct Shape {
  int64_t M, N, K;
};
constexpr Shape shapes[] = {{1, 1, 1},      {0, 5, 7},   {3, 5, 7},     {1, 33, 513}, {17, 31, 65}, {40, 70, 129},
                            {65, 97, 1100}, {5, 3, 512}, {130, 48, 64}, {2, 0, 3},    {3, 4, 0}};

}  // namespace

TEST(GemmForward, IsTheProductInDouble) {
  for (const auto& [M, N, K] : shapes) {
    const Floats x = normals({M, K}, 1, 1, 3), w = normals({N, K}, 2, 1, 1), bias = normals({N}, 3),
                 residual = normals({M, N}, 4, 1, 2);
    std::vector<double> expected(static_cast<size_t>(M * N));
    for (int64_t i = 0; i < M * N; ++i) {
      double sum = static_cast<double>(bias[i % N]) + static_cast<double>(residual[i]);
      for (int64_t k = 0; k < K; ++k)
        sum += static_cast<double>(x[i / N * K + k]) * static_cast<double>(w[i % N * K + k]);
      expected[static_cast<size_t>(i)] = sum;
    }
    each_cpu_body(gemm_forward, [&](auto run, const std::string&) {
      Floats y = poisoned({M, N}, 5);
      if (!run({.y = y, .x = x, .w = w, .bias = bias, .residual = residual})) return;
      EXPECT_TRUE(close(y, expected, {1e-4, 1e-4})) << M << " x " << N << " x " << K;
    });
  }
}

[[maybe_unused]] const bool forward_case = op_cases().add("gemm_forward", [] {
  for (const auto& [M, N, K] : shapes) {
    const Floats x = normals({M, K}, 11, 1, 3), w = normals({N, K}, 12, 1, 1), bias = normals({N}, 13),
                 residual = normals({M, N}, 14, 1, 2);
    Floats y = poisoned({M, N}, 5);
    expect_bodies_agree(gemm_forward, {0, 0}, {.y = y, .x = x, .w = w, .bias = bias, .residual = residual});
    expect_bodies_agree(gemm_forward, {0, 0}, {.y = y, .x = x, .w = w, .bias = bias});
    expect_bodies_agree(gemm_forward, {0, 0}, {.y = y, .x = x, .w = w, .residual = residual});
    expect_bodies_agree(gemm_forward, {0, 0}, {.y = y, .x = x, .w = w});
  }
});

TEST(GemmForward, ResidualMayBeTheOutput) {
  const Floats x = normals({9, 40}, 1), w = normals({35, 40}, 2), residual = normals({9, 35}, 3);
  each_cpu_body(gemm_forward, [&](auto run, const std::string&) {
    Floats apart = poisoned({9, 35}), in_place = residual;
    if (!run({.y = apart, .x = x, .w = w, .residual = residual}) ||
        !run({.y = in_place, .x = x, .w = w, .residual = in_place}))
      return;
    EXPECT_TRUE(close(in_place, apart, {0, 0}));
  });
}

// A row's bits depend neither on the number of rows, nor on its index, nor on the threads.
TEST(GemmForward, RowsDoNotDependOnTheBatch) {
  const int64_t N = 77, K = 1203, most = 70;
  const Floats x = normals({most, K}, 1, 1, 7), w = normals({N, K}, 2, 1, 5), bias = normals({N}, 3);
  Floats whole = poisoned({most, N});
  set_num_threads(1);
  gemm_forward(cpu(), {.y = whole, .x = x, .w = w, .bias = bias});
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (int64_t M = 1; M <= most; ++M) {
      const int64_t first = (M * 31) % (most - M + 1);
      Floats part = poisoned({M, N}, 3);
      gemm_forward(cpu(), {.y = part, .x = x.tensor().rows(first, M), .w = w, .bias = bias});
      for (int64_t i = 0; i < part.size(); ++i)
        ASSERT_TRUE(same_bits(part[i], whole[first * N + i])) << M << " rows, " << threads << " threads, element " << i;
    }
  }
}

// A pruned model has the bits of the full one with zeros (model/prune/).
TEST(GemmForward, ColumnsOfZerosChangeNoBit) {
  for (const auto& [M, N, K] : {Shape{3, 21, 37}, {1, 33, 513}, {17, 31, 700}, {65, 50, 1100}}) {
    Floats x = normals({M, K}, 1, 1, 7), w = normals({N, K}, 2, 1, 5);
    const Floats bias = normals({N}, 3), chance = normals({K}, 4);
    std::vector<int64_t> kept;
    for (int64_t k = 0; k < K; ++k)
      if (chance[k] > 0.2f) kept.push_back(k);
    Floats short_x = poisoned({M, std::ssize(kept)}), short_w = poisoned({N, std::ssize(kept)});
    const auto cut = [&](Tensor from, Tensor to, int64_t rows) {
      for (int64_t r = 0; r < rows; ++r)
        for (size_t j = 0; j < kept.size(); ++j) to.row<float>(r)[j] = from.row<float>(r)[kept[j]];
    };
    cut(x, short_x, M);
    cut(w, short_w, N);
    for (int64_t k = 0; k < K; ++k)
      if (!std::ranges::binary_search(kept, k))
        for (int64_t n = 0; n < N; ++n) w.tensor().row<float>(n)[k] = 0;
    each_cpu_body(gemm_forward, [&](auto run, const std::string& name) {
      Floats whole = poisoned({M, N}, 5), part = poisoned({M, N}, 6);
      if (!run({.y = whole, .x = x, .w = w, .bias = bias}) ||
          !run({.y = part, .x = short_x, .w = short_w, .bias = bias}))
        return;
      for (int64_t i = 0; i < M * N; ++i) ASSERT_TRUE(same_bits(whole[i], part[i])) << name << ", element " << i;
    });
  }
}

TEST(GemmForward, RefusesShapesThatDisagree) {
  const Floats x({2, 3}), w({4, 5}), y({2, 4});
  EXPECT_THROW(gemm_forward(cpu(), {.y = y, .x = x, .w = w}), Error);
  EXPECT_THROW(
      gemm_forward(cpu(), {.y = y, .x = x.tensor().columns(0, 2), .w = w.tensor().columns(0, 2), .bias = Floats({3})}),
      Error);
}

[[maybe_unused]] const bool input_case = op_cases().add("gemm_backward_input", [] {
  for (const auto& [M, N, K] : shapes) {
    Floats dx = poisoned({M, K}, 4);
    expect_bodies_agree(gemm_backward_input, {&dx}, {1e-4, 1e-4}, dx, normals({M, N}, 3, 1, 2),
                        normals({N, K}, 2, 1, 1));
  }
});

[[maybe_unused]] const bool weight_case = op_cases().add("gemm_backward_weight", [] {
  for (const auto& [M, N, K] : shapes) {
    const Floats x = normals({M, K}, 1, 1, 3), dy = normals({M, N}, 3, 1, 2);
    Floats dw = normals({N, K}, 5, 1, 1), dbias = normals({N}, 6);
    expect_bodies_agree(gemm_backward_weight, {&dw, &dbias}, {1e-4, 1e-4}, dw, dbias, dy, x);
    expect_bodies_agree(gemm_backward_weight, {&dw}, {1e-4, 1e-4}, dw, {}, dy, x);
    Floats written = poisoned({N, K}, 1);
    expect_bodies_agree(gemm_backward_weight, {&written}, {1e-4, 1e-4}, {written, false}, {}, dy, x);
  }
});

TEST(GemmBackward, IsTheGradientOfForward) {
  const int64_t M = 5, N = 6, K = 7;
  Floats x = normals({M, K}, 1), w = normals({N, K}, 2), bias = normals({N}, 3);
  const Floats dy = normals({M, N}, 4);
  const auto loss = [&] {
    Floats y = poisoned({M, N});
    gemm_forward(cpu(), {.y = y, .x = x, .w = w, .bias = bias});
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
    return sum;
  };
  Floats dx = poisoned({M, K}), dw({N, K}), dbias({N});
  gemm_backward_input(cpu(), dx, dy, w);
  gemm_backward_weight(cpu(), dw, dbias, dy, x);
  expect_gradient(loss, x, dx);
  expect_gradient(loss, w, dw);
  expect_gradient(loss, bias, dbias);
}

// A product that writes a gradient has the bits of one that adds to zeros, but for the sign of a zero.
TEST(GemmBackward, WritesWhatItAddsToZeros) {
  for (const auto& [M, N, K] : shapes)
    each_cpu_body(gemm_backward_weight, [&, M = M, N = N, K = K](auto body, const std::string&) {
      const Floats x = normals({M, K}, 1), dy = normals({M, N}, 3);
      Floats written = poisoned({N, K}), sum({N, K});
      body({written, false}, {}, dy, x);
      body(sum, {}, dy, x);
      for (int64_t i = 0; i < sum.size(); ++i) ASSERT_EQ(written[i], sum[i]) << "element " << i;
    });
}

TEST(GemmBackward, DoesNotDependOnThreads) {
  const int64_t M = 70, N = 300, K = 530;
  const Floats x = normals({M, K}, 1), w = normals({N, K}, 2), dy = normals({M, N}, 3);
  const auto run = [&](int threads) {
    set_num_threads(threads);
    Floats dx = poisoned({M, K}), dw = normals({N, K}, 5), dbias = normals({N}, 6);
    gemm_backward_input(cpu(), dx, dy, w);
    gemm_backward_weight(cpu(), dw, dbias, dy, x);
    return std::array{dx, dw, dbias};
  };
  const auto one = run(1), two = run(2);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(close(two[i], one[i], {0, 0})) << "output " << i;
}

}  // namespace hone::test
