#include "kernels/elementwise/blend.h"

#include <cmath>

#include "kernels/elementwise/cast.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

[[maybe_unused]] const bool added = op_cases().add("blend", [] {
  Floats y = normals({3, 70}, 1);
  expect_bodies_agree(blend, {&y}, {0, 0}, y, normals({3, 70}, 2), 0.6);
});

}  // namespace

TEST(Blend, IsTheWeightedMeanRoundedOnce) {
  const Floats x = normals({500}, 1), before = normals({500}, 2);
  for (const double alpha : {0.0, 0.6, 0.01, 1.0}) {
    Floats y = before;
    blend(cpu(), y, x, alpha);
    for (int64_t i = 0; i < 500; ++i) {
      const double mean = (1 - alpha) * before[i] + alpha * x[i];
      EXPECT_NEAR(y[i], mean, 2e-7 * (std::fabs(before[i]) + std::fabs(x[i])));
      if (alpha == 0) {
        EXPECT_EQ(y[i], before[i]);
      }
      if (alpha == 1) {
        EXPECT_EQ(y[i], x[i]);
      }
    }
  }
}

TEST(Blend, RoundsBf16Once) {
  const Floats x = normals({300}, 3), y = normals({300}, 4);
  std::vector<uint16_t> stored_x(300), stored_y(300);
  const Tensor short_x(stored_x.data(), DType::bf16, DeviceKind::cpu, {300}),
      short_y(stored_y.data(), DType::bf16, DeviceKind::cpu, {300});
  cast(cpu(), short_x, x);
  cast(cpu(), short_y, y);
  Floats wide_x({300}), wide_y({300}), out({300});
  cast(cpu(), wide_x, short_x);
  cast(cpu(), wide_y, short_y);
  blend(cpu(), short_y, short_x, 0.3);
  blend(cpu(), wide_y, wide_x, 0.3);
  cast(cpu(), out, short_y);
  Floats expected({300});
  cast(cpu(), short_x, wide_y);
  cast(cpu(), expected, short_x);
  for (int64_t i = 0; i < 300; ++i) EXPECT_EQ(out[i], expected[i]) << i;
}

TEST(Blend, RejectsOtherSizesAndTypes) {
  EXPECT_THROW(blend(cpu(), Floats({3}), Floats({4}), 0.5), Error);
  EXPECT_THROW(blend(cpu(), Ids({3}), Ids({3}), 0.5), Error);
}

}  // namespace hone::test
