#include "kernels/norm/rmsnorm.h"

#include "core/base/parallel_for.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"
#include "tests/kernels/stored.h"
#include "tests/support/npy.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr float eps = 1e-5f;
constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 8}, {3, 7}, {5, 64}, {130, 100}, {2, 1025}};

[[maybe_unused]] const bool forward_case = op_cases().add("rmsnorm_forward", [] {
  for (const auto& [rows, dim] : shapes) {
    const Floats x = normals({rows, dim}, 1, 1, 3), w = normals({dim}, 2);
    Floats y = poisoned({rows, dim}, 5), rstd = poisoned({rows});
    expect_bodies_agree(rmsnorm_forward, {&y, &rstd}, {2e-6, 1e-7}, y, rstd, x, w, eps, 0.0f);
    expect_bodies_agree(rmsnorm_forward, {&y}, {2e-6, 1e-7}, y, {}, x, w, eps, 0.0f);
    y = x;
    expect_bodies_agree(rmsnorm_forward, {&y}, {2e-6, 1e-7}, y, {}, y, w, eps, 0.0f);
    expect_bodies_agree(rmsnorm_forward, {&y, &rstd}, {2e-6, 1e-7}, y, rstd, x, w, eps, 1.0f);
  }
});

[[maybe_unused]] const bool backward_case = op_cases().add("rmsnorm_backward", [] {
  for (const auto& [rows, dim] : shapes) {
    const Floats x = normals({rows, dim}, 1, 1, 3), w = normals({dim}, 2), dy = normals({rows, dim}, 3, 1, 1);
    Floats y = poisoned({rows, dim}), rstd = poisoned({rows}), dw = normals({dim}, 4);
    rmsnorm_forward(cpu(), y, rstd, x, w, eps, 0.0f);
    for (const bool accumulate : {false, true}) {
      Floats dx = accumulate ? normals({rows, dim}, 5, 1, 2) : poisoned({rows, dim}, 2);
      expect_bodies_agree(rmsnorm_backward, {1e-5, 1e-5},
                          {.dx = dx, .dw = dw, .dy = dy, .x = x, .rstd = rstd, .w = w, .accumulate = accumulate});
      dx = accumulate ? normals({rows, dim}, 5, 1, 2) : poisoned({rows, dim}, 2);
      expect_bodies_agree(rmsnorm_backward, {1e-5, 1e-5},
                          {.dx = dx, .dy = dy, .x = x, .rstd = rstd, .w = w, .accumulate = accumulate});
      dx = accumulate ? normals({rows, dim}, 5, 1, 2) : poisoned({rows, dim}, 2);
      expect_bodies_agree(
          rmsnorm_backward, {1e-5, 1e-5},
          {.dx = dx, .dw = dw, .dy = dy, .x = x, .rstd = rstd, .w = w, .accumulate = accumulate, .offset = 1});
    }
  }
});

}  // namespace

TEST(Rmsnorm, IsItsFormulaInDouble) {
  for (const auto& [rows, dim] : shapes) {
    const Floats x = normals({rows, dim}, 11, 3), w = normals({dim}, 12);
    std::vector<double> expected;
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) squares += std::pow(static_cast<double>(x[r * dim + i]), 2);
      for (int64_t i = 0; i < dim; ++i)
        expected.push_back(double{x[r * dim + i]} * w[i] / std::sqrt(squares / static_cast<double>(dim) + double{eps}));
    }
    each_cpu_body(rmsnorm_forward, [&](auto run, const std::string&) {
      Floats y = poisoned({rows, dim});
      run(y, {}, x, w, eps, 0.0f);
      EXPECT_TRUE(close(y, expected, {1e-6, 1e-7}));
    });
  }
}

static void expect_rmsnorm_gradients(float offset) {
  Floats x = normals({3, 10}, 1), w = normals({10}, 2);
  const Floats dy = normals({3, 10}, 3);
  Floats y = poisoned({3, 10}), rstd = poisoned({3});
  const auto loss = [&] {
    rmsnorm_forward(cpu(), y, rstd, x, w, eps, offset);
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * dy[i];
    return sum;
  };
  loss();
  const Floats kept = rstd;
  each_cpu_body(rmsnorm_backward, [&](auto run, const std::string&) {
    Floats dx = poisoned({3, 10}), dw({10});
    run({.dx = dx, .dw = dw, .dy = dy, .x = x, .rstd = kept, .w = w, .accumulate = false, .offset = offset});
    expect_gradient(loss, x, dx);
    expect_gradient(loss, w, dw);
  });
}

TEST(Rmsnorm, GradientsAreFiniteDifferences) { expect_rmsnorm_gradients(0); }
TEST(Rmsnorm, GradientsWithAnOffsetAreFiniteDifferences) { expect_rmsnorm_gradients(1); }

TEST(Rmsnorm, BitsDependNeitherOnOtherRowsNorOnThreads) {
  const int64_t rows = 200, dim = 77;
  const Floats x = normals({rows, dim}, 1), w = normals({dim}, 2), dy = normals({rows, dim}, 3);
  set_num_threads(1);
  Floats y = poisoned({rows, dim}), rstd = poisoned({rows}), dx = poisoned({rows, dim}), dw({dim});
  rmsnorm_forward(cpu(), y, rstd, x, w, eps, 0.0f);
  rmsnorm_backward(cpu(), {.dx = dx, .dw = dw, .dy = dy, .x = x, .rstd = rstd, .w = w, .accumulate = false});
  set_num_threads(2);
  Floats dx2 = poisoned({rows, dim}), dw2({dim});
  rmsnorm_backward(cpu(), {.dx = dx2, .dw = dw2, .dy = dy, .x = x, .rstd = rstd, .w = w, .accumulate = false});
  EXPECT_TRUE(close(dx2, dx, {0, 0}));
  EXPECT_TRUE(close(dw2, dw, {0, 0}));
  for (int64_t r = 0; r < rows; r += 33) {
    Floats alone = poisoned({1, dim});
    rmsnorm_forward(cpu(), alone, {}, x.tensor().rows(r, 1), w, eps, 0.0f);
    for (int64_t i = 0; i < dim; ++i) ASSERT_TRUE(same_bits(alone[i], y[r * dim + i]));
  }
}

TEST(Rmsnorm, RefusesShapesThatDisagree) {
  EXPECT_THROW(rmsnorm_forward(cpu(), Floats({2, 3}), {}, Floats({2, 3}), Floats({4}), eps, 0.0f), Error);
  EXPECT_THROW(rmsnorm_forward(cpu(), Floats({2, 4}), {}, Floats({2, 3}), Floats({3}), eps, 0.0f), Error);
}

TEST(Rmsnorm, MatchesVllm) {
  for (const std::string name : {"rmsnorm_f32_8x128", "rmsnorm_bf16_8x128", "rmsnorm_fused_residual_f32_8x128"}) {
    HONE_SHARED_OR_SKIP(folder, "data/parity/vllmcpp_ops/" + name);
    Floats x({8, 128}), w({128}), y = poisoned({8, 128});
    const NpyArray in = read_npy(folder / "x.npy"), weight = read_npy(folder / "weight.npy"),
                   expected = read_npy(folder / "out.npy");
    for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(in.values[static_cast<size_t>(i)]);
    for (int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(weight.values[static_cast<size_t>(i)]);
    if (name.find("residual") != std::string::npos) {
      const NpyArray residual = read_npy(folder / "residual_in.npy"), sum = read_npy(folder / "residual_out.npy");
      for (int64_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(residual.values[static_cast<size_t>(i)]);
      EXPECT_TRUE(close(x, sum.values, {1e-5, 1e-5}));
    }
    rmsnorm_forward(cpu(), y, {}, x, w, 1e-6f, 0.0f);
    const double tolerance = name.find("bf16") == std::string::npos ? 1e-5 : 8e-3;
    EXPECT_TRUE(close(y, expected.values, {tolerance, tolerance})) << name;
  }
}

TEST(Rmsnorm, MatchesStoredForwardAndBackward) {
  HONE_SHARED_OR_SKIP(forward, "vectors/a1/rmsnorm.safetensors");
  HONE_SHARED_OR_SKIP(both, "vectors/a2/rmsnorm_fwd_bwd.safetensors");
  const SafetensorsReader one(forward), two(both);
  Floats y = poisoned({48, 64});
  rmsnorm_forward(cpu(), y, {}, stored(one, "x", {48, 64}), stored(one, "weight_recovered", {64}), eps, 0.0f);
  EXPECT_TRUE(close(y, stored(one, "expected", {48, 64}), {0, 1e-4}));

  const Floats x = stored(two, "x", {200, 50}), w = stored(two, "g", {50});
  Floats out = poisoned({200, 50}), rstd = poisoned({200}), dx = out, dw({50});
  rmsnorm_forward(cpu(), out, rstd, x, w, eps, 0.0f);
  rmsnorm_backward(
      cpu(),
      {.dx = dx, .dw = dw, .dy = stored(two, "dy", {200, 50}), .x = x, .rstd = rstd, .w = w, .accumulate = false});
  EXPECT_TRUE(close(out, stored(two, "y", {200, 50}), {1e-4, 1e-5}));
  EXPECT_TRUE(close(dx, stored(two, "dx", {200, 50}), {1e-4, 1e-5}));
  EXPECT_TRUE(close(dw, stored(two, "dg", {50}), {1e-4, 1e-5}));
}

}  // namespace hone::test
