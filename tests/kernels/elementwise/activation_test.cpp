#include "kernels/elementwise/activation.h"

#include <tuple>

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"
#include "tests/support/npy.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 8}, {3, 7}, {30, 64}, {2, 1025}};
constexpr Tolerance tight{2e-6, 1e-6};

constexpr Activation kinds[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu,
                                Activation::relu2};

// Calls visit(kind, rows, columns).
template <class Visit>
void for_each_case(Visit visit) {
  for (const Activation kind : kinds)
    for (const auto& [rows, dim] : shapes) visit(kind, rows, dim);
}

[[maybe_unused]] const bool added = op_cases().add("glu_forward", [] {
  for_each_case([](Activation kind, int64_t rows, int64_t dim) {
    const Floats gate_up = normals({rows, 2 * dim}, 1, 4, 3);
    Floats y = poisoned({rows, dim}, 2);
    expect_bodies_agree(glu_forward, {&y}, tight, y, gate_up, kind);
  });
}) && op_cases().add("glu_backward", [] {
  for_each_case([](Activation kind, int64_t rows, int64_t dim) {
    const Floats gate_up = normals({rows, 2 * dim}, 1, 4, 3), dy = normals({rows, dim}, 2, 1, 1);
    Floats dgate_up = poisoned({rows, 2 * dim}, 2), y = poisoned({rows, dim}, 2);
    expect_bodies_agree(glu_backward, {&dgate_up}, {1e-5, 4e-6}, dgate_up, Tensor(), dy, gate_up, kind);
    expect_bodies_agree(glu_backward, {&dgate_up, &y}, {1e-5, 4e-6}, dgate_up, y, dy, gate_up, kind);
  });
}) && op_cases().add("activation_forward", [] {
  for_each_case([](Activation kind, int64_t rows, int64_t dim) {
    const Floats x = normals({rows, dim}, 1, 4, 3);
    Floats y = poisoned({rows, dim}, 2);
    expect_bodies_agree(activation_forward, {&y}, tight, y, x, kind);
    y = x;
    expect_bodies_agree(activation_forward, {&y}, tight, y, y, kind);
  });
}) && op_cases().add("activation_backward", [] {
  for_each_case([](Activation kind, int64_t rows, int64_t dim) {
    const Floats x = normals({rows, dim}, 1, 4, 3), dy = normals({rows, dim}, 2, 1, 1);
    Floats dx = poisoned({rows, dim}, 2);
    expect_bodies_agree(activation_backward, {&dx}, {1e-5, 4e-6}, dx, dy, x, kind);
  });
});

// Compares each body's backward with finite differences of its forward.
template <class Forward, class Backward, class... More>
void expect_gradient_of(Forward& forward, Backward& backward, Activation kind, int64_t input_columns, More... more) {
  Floats x = normals({3, input_columns}, 1), y = poisoned({3, 9});
  const Floats dy = normals({3, 9}, 2);
  const auto loss = [&] {
    forward(cpu(), y, x, kind);
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * dy[i];
    return sum;
  };
  each_cpu_body(backward, [&](auto run, const std::string&) {
    Floats dx = poisoned({3, input_columns});
    if (!run(dx, more..., dy, x, kind)) return;  // the body does not support this kind
    expect_gradient(loss, x, dx);
  });
}

}  // namespace

TEST(Glu, GradientIsFiniteDifferences) {
  for (const Activation kind : kinds) expect_gradient_of(glu_forward, glu_backward, kind, 18, Tensor());
}

// In place, as a layer that keeps no activations calls it.
TEST(Swiglu, BackwardGivesForwardsBitsAgainInPlace) {
  each_cpu_body(glu_backward, [&](auto run, const std::string& name) {
    Floats gate_up = normals({5, 38}, 1), dy = normals({5, 19}, 2), y = poisoned({5, 19}), dgate_up = poisoned({5, 38}),
           again = y;
    each_cpu_body(glu_forward, [&](auto forward, const std::string& other) {
      if (other == name) forward(y, gate_up, Activation::silu);
    });
    run(dgate_up, again, dy, gate_up, Activation::silu);
    EXPECT_TRUE(close(again, y, {0, 0})) << name;
    run(gate_up, dy, dy, gate_up, Activation::silu);
    EXPECT_TRUE(close(dy, y, {0, 0})) << name;
    EXPECT_TRUE(close(gate_up, dgate_up, {0, 0})) << name;
  });
}
TEST(Activation, GradientIsFiniteDifferences) {
  for (const Activation kind : kinds) expect_gradient_of(activation_forward, activation_backward, kind, 9);
}

TEST(Swiglu, LargeGatesNeitherOverflowNorTurnIntoNumbersFromNan) {
  const float gates[] = {-1e30f, -200, -90, 90, 200, 1e30f, nan_f32};
  Floats gate_up({1, 14}), y = poisoned({1, 7});
  for (int64_t i = 0; i < 7; ++i) gate_up[i] = gates[i], gate_up[7 + i] = 2;
  each_cpu_body(glu_forward, [&](auto run, const std::string&) {
    run(y, gate_up, Activation::silu);
    for (int64_t i = 0; i < 3; ++i) EXPECT_LE(std::fabs(y[i]), 1e-7f * std::fabs(gates[i])) << gates[i];
    for (int64_t i = 3; i < 6; ++i) EXPECT_FLOAT_EQ(y[i], 2 * gates[i]);
    EXPECT_TRUE(std::isnan(y[6]));
  });
}

TEST(Gelu, HasKnownValues) {  // from the definitions, evaluated with 30 digits
  Floats x({1, 3}), y = poisoned({1, 3});
  x[0] = 1, x[1] = -1, x[2] = 0;
  for (const auto& [kind, at_1, at_minus_1] : {std::tuple{Activation::gelu_tanh, 0.841191990608, -0.158808009392},
                                               std::tuple{Activation::gelu, 0.841344746069, -0.158655253931}}) {
    activation_forward(cpu(), y, x, kind);
    EXPECT_NEAR(y[0], at_1, 1e-6);
    EXPECT_NEAR(y[1], at_minus_1, 1e-6);
    EXPECT_EQ(y[2], 0);
  }
}

TEST(Relu, HasKnownValues) {
  Floats x({1, 3}), y = poisoned({1, 3});
  x[0] = 3, x[1] = -2, x[2] = nan_f32;
  each_cpu_body(activation_forward, [&](auto run, const std::string&) {
    run(y, x, Activation::relu);
    EXPECT_EQ(y[0], 3);
    EXPECT_EQ(y[1], 0);
    EXPECT_TRUE(std::isnan(y[2]));
    run(y, x, Activation::relu2);
    EXPECT_EQ(y[0], 9);
    EXPECT_EQ(y[1], 0);
    EXPECT_TRUE(std::isnan(y[2]));
  });
}

// An element's bits do not depend on the other rows.
TEST(Activation, BitsDoNotDependOnOtherRows) {
  const Floats gate_up = normals({40, 94}, 1), x = normals({40, 47}, 2);
  Floats y = poisoned({40, 47}), z = poisoned({40, 47}), alone = poisoned({1, 47});
  glu_forward(cpu(), y, gate_up, Activation::silu);
  activation_forward(cpu(), z, x, Activation::gelu_tanh);
  for (int64_t r = 0; r < 40; r += 13) {
    glu_forward(cpu(), alone, gate_up.tensor().rows(r, 1), Activation::silu);
    for (int64_t i = 0; i < 47; ++i) ASSERT_TRUE(same_bits(alone[i], y[r * 47 + i]));
    activation_forward(cpu(), alone, x.tensor().rows(r, 1), Activation::gelu_tanh);
    for (int64_t i = 0; i < 47; ++i) ASSERT_TRUE(same_bits(alone[i], z[r * 47 + i]));
  }
}

TEST(Swiglu, MatchesVllm) {
  HONE_SHARED_OR_SKIP(folder, "data/parity/vllmcpp_ops/silu_and_mul_bf16_8x256");
  const NpyArray in = read_npy(folder / "x.npy"), expected = read_npy(folder / "out.npy");
  Floats x({8, 256}), y = poisoned({8, 128});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(in.values[static_cast<size_t>(i)]);
  glu_forward(cpu(), y, x, Activation::silu);
  EXPECT_TRUE(close(y, expected.values, {8e-3, 8e-3}));
}

}  // namespace hone::test
