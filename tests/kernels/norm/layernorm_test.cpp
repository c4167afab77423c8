#include "kernels/norm/layernorm.h"

#include "core/base/parallel_for.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

constexpr float eps = 1e-5f;
constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 2}, {0, 8}, {3, 7}, {35, 100}, {2, 1025}};

[[maybe_unused]] const bool forward_case = op_cases().add("layernorm_forward", [] {
  for (const auto& [rows, dim] : shapes) {
    const Floats x = normals({rows, dim}, 1, 1, 3), w = normals({dim}, 2), b = normals({dim}, 3);
    Floats y = poisoned({rows, dim}, 5), mean = poisoned({rows}), rstd = poisoned({rows});
    expect_bodies_agree(layernorm_forward, {1e-5, 1e-6},
                        {.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = b, .eps = eps});
    expect_bodies_agree(layernorm_forward, {1e-5, 1e-6}, {.y = y, .x = x, .w = w, .eps = eps});
  }
});

[[maybe_unused]] const bool backward_case = op_cases().add("layernorm_backward", [] {
  for (const auto& [rows, dim] : shapes) {
    const Floats x = normals({rows, dim}, 1, 1, 3), w = normals({dim}, 2), dy = normals({rows, dim}, 3, 1, 1);
    Floats y = poisoned({rows, dim}), mean = poisoned({rows}), rstd = poisoned({rows}), dw = normals({dim}, 4),
           db = normals({dim}, 5);
    layernorm_forward(cpu(), {.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .eps = eps});
    for (const bool accumulate : {false, true}) {
      Floats dx = accumulate ? normals({rows, dim}, 6, 1, 2) : poisoned({rows, dim}, 2);
      expect_bodies_agree(layernorm_backward, {1e-5, 1e-5},
                          {.dx = dx,
                           .dw = dw,
                           .db = db,
                           .dy = dy,
                           .x = x,
                           .mean = mean,
                           .rstd = rstd,
                           .w = w,
                           .accumulate = accumulate});
    }
  }
});

}  // namespace

TEST(Layernorm, IsItsFormulaInDouble) {
  for (const auto& [rows, dim] : shapes) {
    const Floats x = normals({rows, dim}, 11, 3), w = normals({dim}, 12), b = normals({dim}, 13);
    std::vector<double> expected;
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < dim; ++i) mean += x[r * dim + i] / static_cast<double>(dim);
      for (int64_t i = 0; i < dim; ++i) variance += std::pow(x[r * dim + i] - mean, 2) / static_cast<double>(dim);
      for (int64_t i = 0; i < dim; ++i)
        expected.push_back((x[r * dim + i] - mean) / std::sqrt(variance + double{eps}) * w[i] + b[i]);
    }
    each_cpu_body(layernorm_forward, [&](auto run, const std::string&) {
      Floats y = poisoned({rows, dim});
      run({.y = y, .x = x, .w = w, .b = b, .eps = eps});
      EXPECT_TRUE(close(y, expected, {1e-5, 1e-6}));
    });
  }
}

TEST(Layernorm, GradientsAreFiniteDifferences) {
  Floats x = normals({3, 10}, 1), w = normals({10}, 2), b = normals({10}, 3);
  const Floats dy = normals({3, 10}, 4);
  Floats y = poisoned({3, 10}), mean = poisoned({3}), rstd = poisoned({3});
  const auto loss = [&] {
    layernorm_forward(cpu(), {.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = b, .eps = eps});
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * dy[i];
    return sum;
  };
  loss();
  const Floats kept_mean = mean, kept_rstd = rstd;
  each_cpu_body(layernorm_backward, [&](auto run, const std::string&) {
    Floats dx = poisoned({3, 10}), dw({10}), db({10});
    run({.dx = dx,
         .dw = dw,
         .db = db,
         .dy = dy,
         .x = x,
         .mean = kept_mean,
         .rstd = kept_rstd,
         .w = w,
         .accumulate = false});
    expect_gradient(loss, x, dx);
    expect_gradient(loss, w, dw);
    expect_gradient(loss, b, db);
  });
}

TEST(Layernorm, BitsDependNeitherOnOtherRowsNorOnThreads) {
  const int64_t rows = 50, dim = 200;
  const Floats x = normals({rows, dim}, 1), w = normals({dim}, 2), dy = normals({rows, dim}, 3);
  std::vector<Floats> first;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    Floats y = poisoned({rows, dim}), mean = poisoned({rows}), rstd = poisoned({rows}), dx = poisoned({rows, dim}),
           dw({dim}), db({dim});
    layernorm_forward(cpu(), {.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .eps = eps});
    layernorm_backward(
        cpu(),
        {.dx = dx, .dw = dw, .db = db, .dy = dy, .x = x, .mean = mean, .rstd = rstd, .w = w, .accumulate = false});
    if (first.empty()) first = {y, dx, dw, db};
    const std::vector<Floats> now = {y, dx, dw, db};
    for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(close(now[i], first[i], {0, 0}));
    Floats alone = poisoned({1, dim});
    layernorm_forward(cpu(), {.y = alone, .x = x.tensor().rows(37, 1), .w = w, .eps = eps});
    for (int64_t i = 0; i < dim; ++i) ASSERT_TRUE(same_bits(alone[i], y[37 * dim + i]));
  }
}

}  // namespace hone::test
