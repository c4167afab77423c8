#include "kernels/optimizer.h"

#include "core/file.h"
#include "core/json.h"
#include "core/parallel_for.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr int64_t sizes[] = {0, 1, 33, 40000};
const AdamwStep adamw{
    .learning_rate = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .correction1 = 0.271f, .correction2 = 0.1426f};

Floats magnitudes(int64_t count, uint64_t seed) {
  Floats out = normals({count}, seed);
  for (int64_t i = 0; i < count; ++i) out[i] *= out[i];
  return out;
}
Floats one(float value) { return Floats({1}, value); }

[[maybe_unused]] const bool added = op_cases().add("adamw_update", [] {
  for (const int64_t n : sizes) {
    Floats value = normals({n}, 1), m = normals({n}, 2), v = magnitudes(n, 3);
    expect_bodies_agree(adamw_update, {&value, &m, &v}, {0, 0}, value, m, v, normals({n}, 4), one(0.7f), adamw);
  }
}) && op_cases().add("sgd_update", [] {
  for (const int64_t n : sizes) {
    Floats value = normals({n}, 1), buffer = normals({n}, 2);
    expect_bodies_agree(sgd_update, {&value, &buffer}, {0, 0}, value, buffer, normals({n}, 3), one(0.7f),
                        SgdStep{.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true});
    expect_bodies_agree(sgd_update, {&value}, {0, 0}, value, {}, normals({n}, 3), one(0.7f), SgdStep{.learning_rate = 0.1f});
  }
}) && op_cases().add("rmsprop_update", [] {
  for (const int64_t n : sizes) {
    Floats value = normals({n}, 1), square = magnitudes(n, 2);
    expect_bodies_agree(rmsprop_update, {&value, &square}, {0, 0}, value, square, normals({n}, 3), one(0.7f),
                        RmspropStep{.learning_rate = 0.1f, .weight_decay = 0.1f});
  }
}) && op_cases().add("sum_squares", [] {
  for (const int64_t n : sizes) {
    const Floats x = normals({n}, 1);
    double exact = 2;
    for (int64_t i = 0; i < n; ++i) exact += double{x[i]} * x[i];
    each_cpu_body(sum_squares, [&](auto run, const std::string&) {
      double sum = 2;
      run(Tensor(&sum, DType::f64, DeviceKind::cpu, {1}), x);
      EXPECT_NEAR(sum, exact, 1e-12 * exact);
    });
  }
}) && op_cases().add("clip_factor", [] {
  Floats clip = poisoned({1}), norm = poisoned({1});
  double sum = 16;
  expect_bodies_agree(clip_factor, {&clip, &norm}, {0, 0}, clip, norm, Tensor(&sum, DType::f64, DeviceKind::cpu, {1}), 1.0f);
});

}  // namespace

TEST(ClipFactor, IsTorchsAndLeavesSmallNormsAlone) {
  const auto clip = [](double sum, float max_norm) {
    Floats factor = poisoned({1}), norm = poisoned({1});
    clip_factor(cpu(), factor, norm, Tensor(&sum, DType::f64, DeviceKind::cpu, {1}), max_norm);
    EXPECT_FLOAT_EQ(norm[0], static_cast<float>(std::sqrt(sum)));
    return factor[0];
  };
  EXPECT_FLOAT_EQ(clip(16, 1), static_cast<float>(1 / (4 + 1e-6)));
  EXPECT_EQ(clip(0.25, 1), 1);
  EXPECT_EQ(clip(0, 1), 1);
  EXPECT_EQ(clip(1e9, 0), 1);
}

TEST(ClipFactor, ANanNormGivesANanFactor) {
  double sum = std::nan("");
  Floats factor = poisoned({1}), norm = poisoned({1});
  factor[0] = 1;
  clip_factor(cpu(), factor, norm, Tensor(&sum, DType::f64, DeviceKind::cpu, {1}), 1.0f);
  EXPECT_TRUE(std::isnan(factor[0]));
}

TEST(SumSquares, BitsDoNotDependOnThreads) {
  const Floats x = normals({100001}, 1);
  each_cpu_body(sum_squares, [&](auto run, const std::string&) {
    double sums[2] = {0, 0};
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      run(Tensor(&sums[threads - 1], DType::f64, DeviceKind::cpu, {1}), x);
    }
    EXPECT_EQ(sums[0], sums[1]);
  });
}

TEST(Sgd, FollowsItsDefinition) {
  Floats value = one(1), buffer = one(100);
  const SgdStep step{.learning_rate = 0.5f, .momentum = 0.5f, .dampening = 0.25f, .weight_decay = 0.5f, .first = true};
  sgd_update(cpu(), value, buffer, one(4), one(0.5f), step);  // gradient 4 * 0.5 + 0.5 * 1
  EXPECT_EQ(buffer[0], 2.5f);
  EXPECT_EQ(value[0], -0.25f);
  SgdStep later = step;
  later.first = false, later.nesterov = true;
  sgd_update(cpu(), value, buffer, one(4), one(0.5f), later);  // gradient 2 - 0.125 = 1.875
  EXPECT_EQ(buffer[0], 0.5f * 2.5f + 0.75f * 1.875f);
  EXPECT_EQ(value[0], -0.25f - 0.5f * (1.875f + 0.5f * 2.65625f));
}

TEST(Rmsprop, FollowsItsDefinition) {
  Floats value = one(1), square = one(4);
  rmsprop_update(cpu(), value, square, one(4), one(0.5f),
                 {.learning_rate = 0.5f, .alpha = 0.5f, .eps = 0, .weight_decay = 2});  // gradient 4 * 0.5 + 2
  EXPECT_EQ(square[0], 10);
  EXPECT_FLOAT_EQ(value[0], 1 - 0.5f * 4 / std::sqrt(10.0f));
}

// A recorded torch.optim.AdamW run on y = W x with a squared loss.
TEST(Adamw, FollowsARecordedTorchRun) {
  HONE_SHARED_OR_SKIP(path, "vectors/a1/adamw.json");
  const Json run = parse_json(read_file(path), path.string());
  const auto row = [](const Json& values, Floats& out, int64_t at) {
    for (const Json& x : values.as_array()) out[at++] = static_cast<float>(x.as_double());
  };
  Floats w({6}), m({6}), v({6}), grad({6}), x({3});
  for (int64_t r = 0; r < 2; ++r) row(run.at("W0").as_array()[static_cast<size_t>(r)], w, 3 * r);
  const int64_t steps = run.at("steps").as_int();
  const double beta1 = run.at("betas").as_array()[0].as_double(), beta2 = run.at("betas").as_array()[1].as_double();
  for (int64_t step = 1; step <= steps; ++step) {
    row(run.at("x").as_array()[static_cast<size_t>(step - 1)], x, 0);
    const float target[2] = {x[0] + x[1], -x[2]};
    for (int64_t r = 0; r < 2; ++r) {
      const float error = target[r] - (w[3 * r] * x[0] + w[3 * r + 1] * x[1] + w[3 * r + 2] * x[2]);
      for (int64_t c = 0; c < 3; ++c) grad[3 * r + c] = -2 * error * x[c];
    }
    adamw_update(cpu(), w, m, v, grad, one(1),
                 {.learning_rate = static_cast<float>(run.at("lr").as_double()),
                  .beta1 = static_cast<float>(beta1),
                  .beta2 = static_cast<float>(beta2),
                  .eps = static_cast<float>(run.at("eps").as_double()),
                  .weight_decay = static_cast<float>(run.at("weight_decay").as_double()),
                  .correction1 = static_cast<float>(1 - std::pow(beta1, step)),
                  .correction2 = static_cast<float>(1 - std::pow(beta2, step))});
  }
  Floats expected({6});
  for (int64_t r = 0; r < 2; ++r) row(run.at("expected_W_torch").as_array()[static_cast<size_t>(r)], expected, 3 * r);
  EXPECT_TRUE(close(w, expected, {1e-5, 1e-5}));
}

}  // namespace hone::test
