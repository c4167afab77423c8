#include "kernels/elementwise/activation.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"
#include "tests/support/npy.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 8}, {3, 7}, {30, 64}, {2, 1025}};
constexpr Tolerance tight{2e-6, 1e-6};

[[maybe_unused]] const bool added = op_cases().add("swiglu_forward", [] {
  for (const auto& [rows, dim] : shapes) {
    const Floats gate_up = normals({rows, 2 * dim}, 1, 4, 3);
    Floats y = poisoned({rows, dim}, 2);
    expect_bodies_agree(swiglu_forward, {&y}, tight, y, gate_up);
  }
}) && op_cases().add("swiglu_backward", [] {
  for (const auto& [rows, dim] : shapes) {
    const Floats gate_up = normals({rows, 2 * dim}, 1, 4, 3), dy = normals({rows, dim}, 2, 1, 1);
    Floats dgate_up = poisoned({rows, 2 * dim}, 2), y = poisoned({rows, dim}, 2);
    expect_bodies_agree(swiglu_backward, {&dgate_up}, {1e-5, 2e-6}, dgate_up, Tensor(), dy, gate_up);
    expect_bodies_agree(swiglu_backward, {&dgate_up, &y}, {1e-5, 2e-6}, dgate_up, y, dy, gate_up);
  }
}) && op_cases().add("gelu_forward", [] {
  for (const auto& [rows, dim] : shapes) {
    const Floats x = normals({rows, dim}, 1, 4, 3);
    Floats y = poisoned({rows, dim}, 2);
    expect_bodies_agree(gelu_forward, {&y}, tight, y, x);
    y = x;
    expect_bodies_agree(gelu_forward, {&y}, tight, y, y);
  }
}) && op_cases().add("gelu_backward", [] {
  for (const auto& [rows, dim] : shapes) {
    const Floats x = normals({rows, dim}, 1, 4, 3), dy = normals({rows, dim}, 2, 1, 1);
    Floats dx = poisoned({rows, dim}, 2);
    expect_bodies_agree(gelu_backward, {&dx}, {1e-5, 4e-6}, dx, dy, x);
  }
});

// Compares each body's backward with finite differences of its forward.
template <class Forward, class Backward, class... More>
void expect_gradient_of(Forward& forward, Backward& backward, int64_t input_columns, More... more) {
  Floats x = normals({3, input_columns}, 1), y = poisoned({3, 9});
  const Floats dy = normals({3, 9}, 2);
  const auto loss = [&] {
    forward(cpu(), y, x);
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * dy[i];
    return sum;
  };
  each_cpu_body(backward, [&](auto run, const std::string&) {
    Floats dx = poisoned({3, input_columns});
    run(dx, more..., dy, x);
    expect_gradient(loss, x, dx);
  });
}

}  // namespace

TEST(Swiglu, GradientIsFiniteDifferences) { expect_gradient_of(swiglu_forward, swiglu_backward, 18, Tensor()); }

// In place, as a layer that keeps no activations calls it.
TEST(Swiglu, BackwardGivesForwardsBitsAgainInPlace) {
  each_cpu_body(swiglu_backward, [&](auto run, const std::string& name) {
    Floats gate_up = normals({5, 38}, 1), dy = normals({5, 19}, 2), y = poisoned({5, 19}), dgate_up = poisoned({5, 38}),
           again = y;
    each_cpu_body(swiglu_forward, [&](auto forward, const std::string& other) {
      if (other == name) forward(y, gate_up);
    });
    run(dgate_up, again, dy, gate_up);
    EXPECT_TRUE(close(again, y, {0, 0})) << name;
    run(gate_up, dy, dy, gate_up);
    EXPECT_TRUE(close(dy, y, {0, 0})) << name;
    EXPECT_TRUE(close(gate_up, dgate_up, {0, 0})) << name;
  });
}
TEST(Gelu, GradientIsFiniteDifferences) { expect_gradient_of(gelu_forward, gelu_backward, 9); }

TEST(Swiglu, LargeGatesNeitherOverflowNorTurnIntoNumbersFromNan) {
  const float gates[] = {-1e30f, -200, -90, 90, 200, 1e30f, nan_f32};
  Floats gate_up({1, 14}), y = poisoned({1, 7});
  for (int64_t i = 0; i < 7; ++i) gate_up[i] = gates[i], gate_up[7 + i] = 2;
  each_cpu_body(swiglu_forward, [&](auto run, const std::string&) {
    run(y, gate_up);
    for (int64_t i = 0; i < 3; ++i) EXPECT_LE(std::fabs(y[i]), 1e-7f * std::fabs(gates[i])) << gates[i];
    for (int64_t i = 3; i < 6; ++i) EXPECT_FLOAT_EQ(y[i], 2 * gates[i]);
    EXPECT_TRUE(std::isnan(y[6]));
  });
}

TEST(Gelu, HasKnownValues) {  // from the definition, evaluated with 30 digits
  Floats x({1, 3}), y = poisoned({1, 3});
  x[0] = 1, x[1] = -1, x[2] = 0;
  each_cpu_body(gelu_forward, [&](auto run, const std::string&) {
    run(y, x);
    EXPECT_NEAR(y[0], 0.841191990608, 1e-6);
    EXPECT_NEAR(y[1], -0.158808009392, 1e-6);
    EXPECT_EQ(y[2], 0);
  });
}

// An element's bits do not depend on the other rows.
TEST(Activation, BitsDoNotDependOnOtherRows) {
  const Floats gate_up = normals({40, 94}, 1), x = normals({40, 47}, 2);
  Floats y = poisoned({40, 47}), z = poisoned({40, 47}), alone = poisoned({1, 47});
  swiglu_forward(cpu(), y, gate_up);
  gelu_forward(cpu(), z, x);
  for (int64_t r = 0; r < 40; r += 13) {
    swiglu_forward(cpu(), alone, gate_up.tensor().rows(r, 1));
    for (int64_t i = 0; i < 47; ++i) ASSERT_TRUE(same_bits(alone[i], y[r * 47 + i]));
    gelu_forward(cpu(), alone, x.tensor().rows(r, 1));
    for (int64_t i = 0; i < 47; ++i) ASSERT_TRUE(same_bits(alone[i], z[r * 47 + i]));
  }
}

TEST(Swiglu, MatchesVllm) {
  HONE_SHARED_OR_SKIP(folder, "data/parity/vllmcpp_ops/silu_and_mul_bf16_8x256");
  const NpyArray in = read_npy(folder / "x.npy"), expected = read_npy(folder / "out.npy");
  Floats x({8, 256}), y = poisoned({8, 128});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(in.values[static_cast<size_t>(i)]);
  swiglu_forward(cpu(), y, x);
  EXPECT_TRUE(close(y, expected.values, {8e-3, 8e-3}));
}

}  // namespace hone::test
