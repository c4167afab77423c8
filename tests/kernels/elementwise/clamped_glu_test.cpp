#include "kernels/elementwise/clamped_glu.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 8}, {3, 7}, {30, 64}, {2, 1025}};
constexpr ClampedGlu rules[] = {{}, {.limit = 1.5f, .alpha = 0.9f}};

[[maybe_unused]] const bool added = op_cases().add("clamped_glu_forward", [] {
  for (const ClampedGlu& rule : rules)
    for (const auto& [rows, dim] : shapes) {
      const Floats gate_up = normals({rows, 2 * dim}, 1, 4, 3);
      Floats y = poisoned({rows, dim}, 2);
      expect_bodies_agree(clamped_glu_forward, {&y}, {2e-6, 1e-6}, y, gate_up, rule);
    }
}) && op_cases().add("clamped_glu_backward", [] {
  for (const ClampedGlu& rule : rules)
    for (const auto& [rows, dim] : shapes) {
      const Floats gate_up = normals({rows, 2 * dim}, 1, 4, 3), dy = normals({rows, dim}, 2, 1, 1);
      Floats dgate_up = poisoned({rows, 2 * dim}, 2);
      expect_bodies_agree(clamped_glu_backward, {&dgate_up}, {1e-5, 4e-6}, dgate_up, dy, gate_up, rule);
    }
});

}  // namespace

TEST(ClampedGlu, GradientIsFiniteDifferences) {
  for (const ClampedGlu& rule : rules) {
    Floats x = normals({3, 18}, 1, 2), y = poisoned({3, 9});
    for (int64_t i = 0; i < x.size(); ++i)  // differences must not cross a limit
      if (std::fabs(std::fabs(x[i]) - rule.limit) < 0.02f) x[i] = 0.3f;
    const Floats dy = normals({3, 9}, 2);
    const auto loss = [&] {
      clamped_glu_forward(cpu(), y, x, rule);
      double sum = 0;
      for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * dy[i];
      return sum;
    };
    each_cpu_body(clamped_glu_backward, [&](auto run, const std::string&) {
      Floats dx = poisoned({3, 18});
      run(dx, dy, x, rule);
      expect_gradient(loss, x, dx);
      Floats in_place = x;
      run(in_place, dy, in_place, rule);
      EXPECT_TRUE(close(in_place, dx, {0, 0}));
    });
  }
}

// Numbers of transformers' GptOssExperts._apply_gate. A gradient passes at a limit and stops beyond it.
TEST(ClampedGlu, IsThatOfGptOss) {
  Floats gate_up({5, 2}), y = poisoned({5, 1}), dx = poisoned({5, 2});
  const float numbers[] = {1, 2, 9, 2, 1, -9, 7, 7, -9, 9};
  for (int64_t i = 0; i < gate_up.size(); ++i) gate_up[i] = numbers[i];
  const Floats dy({5, 1}, 1.0f);
  each_cpu_body(clamped_glu_forward, [&](auto run, const std::string&) {
    run(y, gate_up, ClampedGlu());
    const double expected[] = {2.5373873, 20.9998594, -5.0747746, 55.9996250, -0.0000160};
    for (int64_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 2e-5) << i;
  });
  each_cpu_body(clamped_glu_backward, [&](auto run, const std::string&) {
    run(dx, dy, gate_up, ClampedGlu());
    EXPECT_EQ(dx[2], 0);  // gate above the limit
    EXPECT_EQ(dx[5], 0);  // up below its limit
    EXPECT_NE(dx[6], 0);
    EXPECT_NE(dx[7], 0);
    EXPECT_NE(dx[8], 0);  // a gate has no lower limit
    EXPECT_EQ(dx[9], 0);
  });
}

TEST(ClampedGlu, NanPasses) {
  const float numbers[] = {nan_f32, 1, 1, nan_f32};
  Floats gate_up({2, 2}), y = poisoned({2, 1});
  for (int64_t i = 0; i < 4; ++i) gate_up[i] = numbers[i];
  each_cpu_body(clamped_glu_forward, [&](auto run, const std::string&) {
    y[0] = y[1] = 0;
    run(y, gate_up, ClampedGlu());
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  });
}

}  // namespace hone::test
