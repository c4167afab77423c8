#include "kernels/elementwise/clamp.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 8}, {3, 7}, {40, 24}, {2, 1025}};

[[maybe_unused]] const bool added = op_cases().add("clamp_forward", [] {
  for (const auto& [rows, dim] : shapes) {
    Floats x = normals({rows, dim}, 1, 4, 3);
    expect_bodies_agree(clamp_forward, {&x}, {0, 0}, x, 2.0f);
  }
}) && op_cases().add("clamp_backward", [] {
  for (const auto& [rows, dim] : shapes) {
    Floats dx = normals({rows, dim}, 1, 1, 3), x = normals({rows, dim}, 2, 4, 1);
    expect_bodies_agree(clamp_backward, {&dx}, {0, 0}, dx, x, 2.0f);
  }
});

}  // namespace

// As torch.clamp: a gradient passes at a limit and stops beyond it; a NaN stays one.
TEST(Clamp, IsThatOfTorch) {
  const float numbers[] = {-9, -2, -0.5f, 0, 2, 2.0001f, INFINITY, nan_f32};
  const double expected[] = {-2, -2, -0.5, 0, 2, 2, 2}, slopes[] = {0, 1, 1, 1, 1, 0, 0};
  Floats x({1, 8}), y({1, 8});
  for (int64_t i = 0; i < x.size(); ++i) y[i] = x[i] = numbers[i];
  Floats dx({1, 8}, 1.0f);
  clamp_forward(cpu(), y, 2);
  clamp_backward(cpu(), dx, x, 2);
  for (int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(y[i], static_cast<float>(expected[i])) << i;
    EXPECT_EQ(dx[i], static_cast<float>(slopes[i])) << i;
  }
  EXPECT_TRUE(std::isnan(y[7]));
}

TEST(Clamp, GradientIsFiniteDifferences) {
  constexpr float limit = 1.5f;
  Floats x = normals({3, 9}, 1, 2), y = x;
  for (int64_t i = 0; i < x.size(); ++i)  // differences must not cross a limit
    if (std::fabs(std::fabs(x[i]) - limit) < 0.02f) x[i] = 0.3f;
  const Floats dy = normals({3, 9}, 2);
  const auto loss = [&] {
    y = x;
    clamp_forward(cpu(), y, limit);
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * dy[i];
    return sum;
  };
  Floats dx = dy;
  clamp_backward(cpu(), dx, x, limit);
  expect_gradient(loss, x, dx);
}

TEST(Clamp, RefusesALimitThatIsNotPositive) {
  Floats x({1, 2});
  EXPECT_THROW(clamp_forward(cpu(), x, 0), Error);
  EXPECT_THROW(clamp_backward(cpu(), x, x, -1), Error);
}

}  // namespace hone::test
