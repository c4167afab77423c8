#include "kernels/elementwise/softcap.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 8}, {3, 7}, {2, 1025}};

[[maybe_unused]] const bool added = op_cases().add("softcap_forward", [] {
  for (const auto& [rows, dim] : shapes) {
    Floats x = normals({rows, dim}, 1, 4, 3);
    expect_bodies_agree(softcap_forward, {&x}, {2e-6, 1e-6}, x, 2.0f);
  }
}) && op_cases().add("softcap_backward", [] {
  for (const auto& [rows, dim] : shapes) {
    Floats dx = normals({rows, dim}, 1, 1, 3), y = normals({rows, dim}, 2, 0.5f, 1);
    expect_bodies_agree(softcap_backward, {&dx}, {2e-6, 1e-6}, dx, y, 2.0f);
  }
});

}  // namespace

TEST(Softcap, BoundsAndKeepsSmallNumbers) {
  Floats x({1, 4});
  x[0] = 1e30f, x[1] = -1e30f, x[2] = 1e-3f, x[3] = 30;
  softcap_forward(cpu(), x, 30);
  EXPECT_EQ(x[0], 30);
  EXPECT_EQ(x[1], -30);
  EXPECT_NEAR(x[2], 1e-3, 1e-9);
  EXPECT_NEAR(x[3], 30 * 0.761594155956, 1e-5);
}

TEST(Softcap, GradientIsFiniteDifferences) {
  Floats x = normals({3, 9}, 1, 2), y = x;
  const Floats dy = normals({3, 9}, 2);
  const auto loss = [&] {
    y = x;
    softcap_forward(cpu(), y, 1.5f);
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * dy[i];
    return sum;
  };
  loss();
  Floats dx = dy;
  softcap_backward(cpu(), dx, y, 1.5f);
  expect_gradient(loss, x, dx);
}

TEST(Softcap, RefusesACapThatIsNotPositive) {
  Floats x({1, 2});
  EXPECT_THROW(softcap_forward(cpu(), x, 0), Error);
}

}  // namespace hone::test
