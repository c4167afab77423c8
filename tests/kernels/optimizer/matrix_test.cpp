// The steps of Muon and Adafactor.
#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/optimizer/adafactor.h"
#include "kernels/optimizer/internal.h"
#include "kernels/optimizer/muon.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

Floats magnitudes(std::initializer_list<int64_t> dims, uint64_t seed) {
  Floats out = normals(dims, seed);
  for (int64_t i = 0; i < out.size(); ++i) out[i] = out[i] * out[i] + 1e-3f;
  return out;
}
Floats one(float value) { return Floats({1}, value); }
Tensor f64(double& value) { return Tensor(&value, DType::f64, DeviceKind::cpu, {1}); }

[[maybe_unused]] const bool added = op_cases().add("muon_momentum", [] {
  for (const int64_t n : {0, 1, 33, 40000}) {
    Floats update = poisoned({n}), buffer = normals({n}, 2);
    expect_bodies_agree(muon_momentum, {0, 0},
                        {.update = update, .buffer = buffer, .grad = normals({n}, 3), .clip = one(0.5f), .step = {}});
  }
}) && op_cases().add("muon_normalize", [] {
  for (const bool transposed : {false, true}) {
    Floats x = transposed ? poisoned({7, 5}) : poisoned({5, 7});
    double squares = 9;
    expect_bodies_agree(muon_normalize, {0, 0},
                        {.x = x, .update = normals({5, 7}, 3), .squares = f64(squares), .transposed = transposed});
  }
}) && op_cases().add("scaled_sum", [] {
  for (const int64_t n : {0, 1, 33, 40000}) {
    Floats y = normals({n}, 1);
    expect_bodies_agree(scaled_sum, {0, 0}, {.y = y, .x = normals({n}, 2), .a = 3, .b = -0.5f});
  }
}) && op_cases().add("muon_apply", [] {
  for (const bool transposed : {false, true}) {
    Floats value = normals({20}, 1);
    Numbers<bf16> rounded({20});
    expect_bodies_agree(muon_apply, {0, 0},
                        {.value = value,
                         .rounded = rounded,
                         .direction = normals({6, 5}, 2),
                         .first = 7,
                         .transposed = transposed,
                         .keep = 0.9f,
                         .rate = 0.1f});
  }
}) && op_cases().add("adafactor_factored", [] {
  Floats update = poisoned({5, 7}), row = magnitudes({5}, 1), col = magnitudes({7}, 2);
  expect_bodies_agree(adafactor_factored, {0, 0},
                      {.update = update,
                       .row = row,
                       .col = col,
                       .grad = normals({5, 7}, 3),
                       .clip = one(0.5f),
                       .step = {.beta2 = 0.5f}});
}) && op_cases().add("adafactor_vector", [] {
  Floats update = poisoned({33}), square = magnitudes({33}, 1);
  expect_bodies_agree(
      adafactor_vector, {0, 0},
      {.update = update, .square = square, .grad = normals({33}, 3), .clip = one(0.5f), .step = {.beta2 = 0.5f}});
}) && op_cases().add("adafactor_apply", [] {
  Floats value = normals({33}, 1), mean = normals({33}, 2);
  Numbers<bf16> rounded({33});
  double squares = 50, value_squares = 7;
  expect_bodies_agree(adafactor_apply, {0, 0},
                      {.value = value,
                       .rounded = rounded,
                       .mean = mean,
                       .update = normals({33}, 3),
                       .squares = f64(squares),
                       .value_squares = f64(value_squares),
                       .size = 33,
                       .rate = 0.1f,
                       .beta1 = 0.5f,
                       .weight_decay = 0.1f});
});

TEST(MuonMomentum, IsARunningMeanAndAStepAhead) {
  for (const bool nesterov : {false, true}) {
    Floats update = poisoned({1}), buffer = one(2);
    muon_momentum(cpu(), {.update = update,
                          .buffer = buffer,
                          .grad = one(8),
                          .clip = one(0.5f),
                          .step = {.momentum = 0.75f, .nesterov = nesterov}});
    EXPECT_EQ(buffer[0], 2.5f);                      // 2 + 0.25 (4 - 2)
    EXPECT_EQ(update[0], nesterov ? 2.875f : 2.5f);  // 4 + 0.75 (2.5 - 4)
  }
}

TEST(MuonMomentum, Bf16BuffersAreRoundedAfterAnExactUpdate) {
  const int64_t n = 1001;
  Floats exact_update = poisoned({n}), update = poisoned({n}), exact({n});
  Numbers<bf16> buffer({n});
  for (int64_t i = 0; i < n; ++i) {
    buffer[i] = to_bf16(std::sin(static_cast<float>(i)));
    exact[i] = to_float(buffer[i]);
  }
  const Floats grad = normals({n}, 3);
  const auto step = [&](Tensor to, Tensor state) {
    muon_momentum(
        cpu(),
        {.update = to, .buffer = state, .grad = grad, .clip = one(1), .first = 6, .step = {.seed = 3, .stream = 4}});
  };
  step(exact_update, exact);
  step(update, buffer);
  EXPECT_TRUE(close(update, exact_update, {0, 0}));
  for (int64_t i = 0; i < n; ++i)
    ASSERT_EQ(buffer[i].bits, to_bf16(stochastic_bf16(exact[i], rounding_noise(3, 4, 6 + i))).bits) << i;
}

TEST(MuonNormalize, DividesByTheNormAndTransposes) {
  const Floats update = normals({3, 4}, 1);
  Floats x = poisoned({3, 4}), transposed = poisoned({4, 3}), tiny = poisoned({3, 4});
  double squares = 16, none = 0;
  muon_normalize(cpu(), {.x = x, .update = update, .squares = f64(squares)});
  muon_normalize(cpu(), {.x = transposed, .update = update, .squares = f64(squares), .transposed = true});
  muon_normalize(cpu(), {.x = tiny, .update = update, .squares = f64(none), .eps = 0.5f});
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t c = 0; c < 4; ++c) {
      EXPECT_EQ(x[r * 4 + c], update[r * 4 + c] / 4);
      EXPECT_EQ(transposed[c * 3 + r], update[r * 4 + c] / 4);
      EXPECT_EQ(tiny[r * 4 + c], update[r * 4 + c] / 0.5f);
    }
}

// Parts of a matrix move as the whole does.
TEST(MuonApply, PartsHaveTheBitsOfTheWhole) {
  for (const bool transposed : {false, true}) {
    const Floats start = normals({30}, 1), direction = normals({6, 5}, 2);
    Floats whole = start, parts = start;
    const MuonApply all{.value = whole, .direction = direction, .transposed = transposed, .keep = 0.9f, .rate = 0.5f};
    muon_apply(cpu(), all);
    for (const auto& [first, last] : {std::pair{0, 7}, {7, 8}, {8, 30}}) {
      MuonApply part = all;
      part.value = parts.tensor().rows(first, last - first);
      part.first = first;
      muon_apply(cpu(), part);
    }
    EXPECT_TRUE(close(parts, whole, {0, 0}));
    const int64_t rows = transposed ? 5 : 6, cols = transposed ? 6 : 5;  // element 13 of a [rows, cols] matrix
    const float from = transposed ? direction[13 % cols * rows + 13 / cols] : direction[13];
    EXPECT_EQ(whole[13], start[13] * 0.9f - 0.5f * from);
    MuonApply outside = all;
    outside.first = 1;
    EXPECT_THROW(muon_apply(cpu(), outside), Error);
  }
}

TEST(AdafactorFactored, BitsDoNotDependOnThreads) {
  const Floats grad = normals({300, 200}, 3);
  std::vector<Floats> updates;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    Floats row = magnitudes({300}, 1), col = magnitudes({200}, 2);
    updates.push_back(poisoned({300, 200}));
    adafactor_factored(
        cpu(),
        {.update = updates.back(), .row = row, .col = col, .grad = grad, .clip = one(1), .step = {.beta2 = 0.9f}});
  }
  EXPECT_TRUE(close(updates[0], updates[1], {0, 0}));
}

}  // namespace
}  // namespace hone::test
