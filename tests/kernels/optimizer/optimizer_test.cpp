#include "kernels/optimizer/optimizer.h"

#include <bit>

#include "core/base/parallel_for.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "kernels/optimizer/internal.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr int64_t sizes[] = {0, 1, 33, 40000};
const AdamwStep adamw{.learning_rate = 1e-2f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .weight_decay = 0.1f,
                      .correction1 = 0.271f,
                      .correction2 = 0.1426f};

Floats magnitudes(int64_t count, uint64_t seed) {
  Floats out = normals({count}, seed);
  for (int64_t i = 0; i < count; ++i) out[i] *= out[i];
  return out;
}
Floats one(float value) { return Floats({1}, value); }

// A range with weight decay in two granules of three, as for norms between matrices.
struct Range {
  explicit Range(int64_t count)
      : value(normals({count}, 1)),
        grad(normals({count}, 4)),
        clip(one(0.7f)),
        rounded({count}),
        decays((count + 63) / 64) {
    for (size_t b = 0; b < decays.size(); ++b) decays[b] = b % 3 != 1;
  }
  operator ParamRange() const { return {value, rounded, grad, host_view(std::span(decays)), clip}; }
  Floats value, grad, clip;
  Numbers<bf16> rounded;
  mutable std::vector<uint8_t> decays;
};
Numbers<bf16> as_bf16(const Floats& x) {
  Numbers<bf16> out({x.size()});
  for (int64_t i = 0; i < x.size(); ++i) out[i] = to_bf16(x[i]);
  return out;
}
std::vector<uint16_t> bits(const Numbers<bf16>& x) {
  std::vector<uint16_t> out;
  for (int64_t i = 0; i < x.size(); ++i) out.push_back(x[i].bits);
  return out;
}
void expect_nearest(const Numbers<bf16>& rounded, const Floats& value) {
  EXPECT_TRUE(rounded.gaps_intact());
  EXPECT_EQ(bits(rounded), bits(as_bf16(value)));
}

[[maybe_unused]] const bool added = op_cases().add("adamw_update", [] {
  for (const int64_t n : sizes) {
    Range range(n);
    Floats m = normals({n}, 2), v = magnitudes(n, 3);
    expect_bodies_agree(adamw_update, {0, 0}, {.range = range, .m = m, .v = v, .step = adamw});
    expect_bodies_agree(adamw_update, {0, 0},
                        {.range = {range.value, {}, range.grad, {}, range.clip}, .m = m, .v = v, .step = adamw});
  }
}) && op_cases().add("sgd_update", [] {
  for (const int64_t n : sizes) {
    Range range(n);
    Floats buffer = normals({n}, 2);
    expect_bodies_agree(
        sgd_update, {0, 0},
        {.range = range,
         .buffer = buffer,
         .step = SgdStep{.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true}});
    expect_bodies_agree(sgd_update, {0, 0}, {.range = range, .step = SgdStep{.learning_rate = 0.1f}});
  }
}) && op_cases().add("rmsprop_update", [] {
  for (const int64_t n : sizes) {
    Range range(n);
    Floats square = magnitudes(n, 2);
    expect_bodies_agree(
        rmsprop_update, {0, 0},
        {.range = range, .square = square, .step = RmspropStep{.learning_rate = 0.1f, .weight_decay = 0.1f}});
  }
}) && op_cases().add("adagrad_update", [] {
  for (const int64_t n : sizes) {
    Range range(n);
    Floats sum = magnitudes(n, 2);
    expect_bodies_agree(adagrad_update, {0, 0},
                        {.range = range, .sum = sum, .step = {.learning_rate = 0.1f, .weight_decay = 0.1f}});
  }
}) && op_cases().add("lion_update", [] {
  for (const int64_t n : sizes) {
    Range range(n);
    Floats m = normals({n}, 2);
    expect_bodies_agree(lion_update, {0, 0},
                        {.range = range, .m = m, .step = {.learning_rate = 0.1f, .weight_decay = 0.1f}});
  }
}) && op_cases().add("sum_squares", [] {
  for (const int64_t n : sizes)
    for (const int64_t size : {64, 4096}) {
      const Floats x = normals({n}, 1);
      std::vector<double> exact(static_cast<size_t>((n + size - 1) / size)), pieces = exact;
      for (int64_t i = 0; i < n; ++i) exact[static_cast<size_t>(i / size)] += double{x[i]} * x[i];
      each_cpu_body(sum_squares, [&](auto run, const std::string&) {
        std::ranges::fill(pieces, nan_f32);
        run(host_view(std::span(pieces)), x, size);
        for (size_t p = 0; p < exact.size(); ++p) EXPECT_NEAR(pieces[p], exact[p], 1e-12 * exact[p]) << p;
      });
    }
}) && op_cases().add("sum_pieces", [] {
  std::vector<double> pieces = {1, 1e-20, 2.5, -1};
  each_cpu_body(sum_pieces, [&](auto run, const std::string&) {
    double sum = nan_f32;
    run(Tensor(&sum, DType::f64, DeviceKind::cpu, {1}), host_view(std::span(pieces)));
    EXPECT_EQ(sum, 2.5);
    run(Tensor(&sum, DType::f64, DeviceKind::cpu, {1}), host_view(std::span(pieces).first(0)));
    EXPECT_EQ(sum, 0);
  });
}) && op_cases().add("clip_factor", [] {
  Floats clip = poisoned({1}), norm = poisoned({1});
  double sum = 16;
  expect_bodies_agree(clip_factor, {&clip, &norm}, {0, 0}, clip, norm, Tensor(&sum, DType::f64, DeviceKind::cpu, {1}),
                      1.0f);
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

TEST(SumSquares, BitsDoNotDependOnThreadsOrOnTheOtherPieces) {
  const Floats x = normals({100001}, 1);
  constexpr int64_t size = 4096, count = 25, skipped = 3;
  each_cpu_body(sum_squares, [&](auto run, const std::string&) {
    std::vector<double> sums[2], rest(count - skipped);
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      sums[threads - 1].resize(count);
      run(host_view(std::span(sums[threads - 1])), x, size);
    }
    EXPECT_EQ(sums[0], sums[1]);
    run(host_view(std::span(rest)), x.tensor().rows(skipped * size, x.size() - skipped * size), size);
    EXPECT_TRUE(std::ranges::equal(rest, std::span(sums[0]).subspan(skipped)));
  });
  double piece = 0;
  EXPECT_THROW(sum_squares(cpu(), host_view(std::span(&piece, 1)), x.tensor().rows(0, 6), 6), Error);
}

TEST(Sgd, FollowsItsDefinition) {
  Floats value = one(1), buffer = one(100);
  const SgdStep step{.learning_rate = 0.5f, .momentum = 0.5f, .dampening = 0.25f, .weight_decay = 0.5f, .first = true};
  sgd_update(
      cpu(),
      {.range = {value, {}, one(4), {}, one(0.5f)}, .buffer = buffer, .step = step});  // gradient 4 * 0.5 + 0.5 * 1
  EXPECT_EQ(buffer[0], 2.5f);
  EXPECT_EQ(value[0], -0.25f);
  SgdStep later = step;
  later.first = false, later.nesterov = true;
  sgd_update(
      cpu(),
      {.range = {value, {}, one(4), {}, one(0.5f)}, .buffer = buffer, .step = later});  // gradient 2 - 0.125 = 1.875
  EXPECT_EQ(buffer[0], 0.5f * 2.5f + 0.75f * 1.875f);
  EXPECT_EQ(value[0], -0.25f - 0.5f * (1.875f + 0.5f * 2.65625f));
}

TEST(Rmsprop, FollowsItsDefinition) {
  Floats value = one(1), square = one(4);
  rmsprop_update(
      cpu(), {.range = {value, {}, one(4), {}, one(0.5f)},
              .square = square,
              .step = {.learning_rate = 0.5f, .alpha = 0.5f, .eps = 0, .weight_decay = 2}});  // gradient 4 * 0.5 + 2
  EXPECT_EQ(square[0], 10);
  EXPECT_FLOAT_EQ(value[0], 1 - 0.5f * 4 / std::sqrt(10.0f));
}

// Weight decay and the rounded copy of each update.
TEST(Updates, BlocksDecayOneByOneAndTheNearestBf16IsWritten) {
  const int64_t n = 40000;
  const Floats m = normals({n}, 2), v = magnitudes(n, 3);
  const auto check = [&](auto update) {  // update(range, weight_decay)
    const Range mixed(n), all(n), none(n);
    update(mixed, 0.1f);
    ParamRange plain = all;
    plain.decays = plain.rounded = {};
    update(plain, 0.1f);
    update(none, 0.0f);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_TRUE(same_bits(mixed.value[i], (mixed.decays[static_cast<size_t>(i / 64)] ? all : none).value[i])) << i;
    EXPECT_FALSE(close(all.value, none.value, {0, 0}));
    expect_nearest(mixed.rounded, mixed.value);
  };
  each_cpu_body(adamw_update, [&](auto run, const std::string&) {
    check([&](const ParamRange& range, float weight_decay) {
      AdamwStep step = adamw;
      step.weight_decay = weight_decay;
      run({.range = range, .m = Floats(m), .v = Floats(v), .step = step});
    });
  });
  check([&](const ParamRange& range, float weight_decay) {
    sgd_update(cpu(), {.range = range,
                       .buffer = Floats(m),
                       .step = {.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = weight_decay}});
  });
  check([&](const ParamRange& range, float weight_decay) {
    rmsprop_update(
        cpu(), {.range = range, .square = Floats(v), .step = {.learning_rate = 0.1f, .weight_decay = weight_decay}});
  });
  check([&](const ParamRange& range, float weight_decay) {
    adagrad_update(cpu(),
                   {.range = range, .sum = Floats(v), .step = {.learning_rate = 0.1f, .weight_decay = weight_decay}});
  });
  check([&](const ParamRange& range, float weight_decay) {
    lion_update(cpu(), {.range = range, .m = Floats(m), .step = {.learning_rate = 0.1f, .weight_decay = weight_decay}});
  });
}

TEST(Adamw, Bf16MomentsAreRoundedOnceTheValueHasMoved) {
  const int64_t n = 10001;
  const Range exact(n), coarse(n);
  const Numbers<bf16> m = as_bf16(normals({n}, 2)), v = as_bf16(magnitudes(n, 3));
  Numbers<bf16> m_new = m, v_new = v, m_again = m, v_again = v;
  Floats m_exact({n}), v_exact({n});
  for (int64_t i = 0; i < n; ++i) m_exact[i] = to_float(m[i]), v_exact[i] = to_float(v[i]);
  AdamwStep step = adamw;
  step.seed = 5, step.stream = 9;
  adamw_update(cpu(), {.range = exact, .m = m_exact, .v = v_exact, .step = step});
  adamw_update(cpu(), {.range = coarse, .m = m_new, .v = v_new, .step = step});
  EXPECT_TRUE(close(coarse.value, exact.value, {0, 0}));
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t noise = philox(5, 9, static_cast<uint64_t>(i / 4)).word[i % 4];
    ASSERT_EQ(m_new[i].bits, to_bf16(stochastic_bf16(m_exact[i], noise)).bits) << i;
    ASSERT_EQ(v_new[i].bits, to_bf16(stochastic_bf16(v_exact[i], noise >> 16)).bits) << i;
  }
  step.stream = 10;
  adamw_update(cpu(), {.range = Range(n), .m = m_again, .v = v_again, .step = step});
  step.stream = 9;
  EXPECT_NE(bits(m_again), bits(m_new));
  EXPECT_NE(bits(v_again), bits(v_new));
  // A part draws as the whole does.
  const int64_t skip = 640;
  const Range part(n);
  Numbers<bf16> m_part = m, v_part = v;
  const auto tail = [&](const Tensor& x) { return x.rows(skip, n - skip); };
  adamw_update(cpu(), {.range = {tail(part.value), {}, tail(part.grad), {}, part.clip, skip},
                       .m = tail(m_part),
                       .v = tail(v_part),
                       .step = step});
  for (int64_t i = skip; i < n; ++i) ASSERT_EQ(m_part[i].bits, m_new[i].bits) << i;
  for (int64_t i = skip; i < n; ++i) ASSERT_EQ(v_part[i].bits, v_new[i].bits) << i;
}

// A parameter group may end anywhere in a fused matrix.
TEST(Adamw, APartThatBeginsInsideOfADrawDrawsAsTheWholeDoes) {
  const int64_t n = 101;
  const Numbers<bf16> m = as_bf16(normals({n}, 2)), v = as_bf16(magnitudes(n, 3));
  Numbers<bf16> m_whole = m, v_whole = v, m_part = m, v_part = v;
  AdamwStep step = adamw;
  step.seed = 5, step.stream = 9;
  adamw_update(cpu(), {.range = Range(n), .m = m_whole, .v = v_whole, .step = step});
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 35}, {35, 38}, {38, n}}) {
    const Range range(n);
    const auto part = [&, from = first, count = last - first](const Tensor& x) { return x.rows(from, count); };
    adamw_update(cpu(), {.range = {part(range.value), {}, part(range.grad), {}, range.clip, first},
                         .m = part(m_part),
                         .v = part(v_part),
                         .step = step});
  }
  EXPECT_EQ(bits(m_part), bits(m_whole));
  EXPECT_EQ(bits(v_part), bits(v_whole));
  const ParamRange range = Range(n);
  ParamRange negative = range;
  negative.first = -1;
  EXPECT_THROW(adamw_update(cpu(), {.range = negative, .m = m_part, .v = v_part, .step = step}), Error);
}

TEST(Adagrad, FollowsItsDefinition) {
  Floats value = one(1), sum = one(100);
  AdagradStep step{.learning_rate = 0.5f, .eps = 1, .weight_decay = 2, .initial = 7, .first = true};
  adagrad_update(cpu(), {.range = {value, {}, one(4), {}, one(0.25f)}, .sum = sum, .step = step});
  EXPECT_EQ(sum[0], 16);  // 7 + (4 * 0.25 + 2)^2
  EXPECT_FLOAT_EQ(value[0], 1 - 0.5f * 3 / (4 + 1));
  step.first = false;
  adagrad_update(cpu(), {.range = {value, {}, one(0), {}, one(1)}, .sum = sum, .step = step});
  EXPECT_FLOAT_EQ(sum[0], 16 + 4 * 0.7f * 0.7f);
}

TEST(Lion, MovesByTheSignOfItsMix) {
  Floats value = one(1), m = one(-2);
  const LionStep step{.learning_rate = 0.25f, .beta1 = 0.5f, .beta2 = 0.75f, .weight_decay = 2};
  lion_update(cpu(), {.range = {value, {}, one(8), {}, one(0.5f)}, .m = m, .step = step});  // mix 0.5 * -2 + 0.5 * 4
  EXPECT_EQ(value[0], 0.5f - 0.25f);
  EXPECT_EQ(m[0], -2 * 0.75f + 4 * 0.25f);
  Floats still = one(1), zero = one(0);
  lion_update(cpu(), {.range = {still, {}, one(0), {}, one(1)}, .m = zero, .step = {.learning_rate = 0.25f}});
  EXPECT_EQ(still[0], 1);  // the sign of 0 is 0
}

TEST(StochasticRounding, IsToANeighbourAndRightOnAverage) {
  for (const float x : {1.001f, -3.1415927f, 1e-20f, 65280.5f, -0.0f, 0.5f, 3.0e-39f}) {
    double sum = 0;
    for (uint32_t noise = 0; noise < 0x10000u; ++noise) {
      const float out = stochastic_bf16(x, noise | 0xabcd0000u);
      ASSERT_TRUE(same_bits(to_float(to_bf16(out)), out)) << x;
      ASSERT_LE(std::fabs(out - x), std::ldexp(1.0f, std::max(-126, std::ilogb(x)) - 7)) << x;
      sum += out;
    }
    EXPECT_NEAR(sum / 0x10000, x, 1e-7 * std::fabs(x)) << x;
  }
  for (const uint32_t noise : {0u, 0xffffu}) {
    for (const uint32_t nan : {0x7fc00000u, 0xffffffffu, 0x7f800001u})
      EXPECT_TRUE(std::isnan(to_float(to_bf16(stochastic_bf16(std::bit_cast<float>(nan), noise)))));
    EXPECT_EQ(stochastic_bf16(-std::numeric_limits<float>::infinity(), noise), -std::numeric_limits<float>::infinity());
  }
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
    adamw_update(cpu(), {.range = {w, {}, grad, {}, one(1)},
                         .m = m,
                         .v = v,
                         .step = {.learning_rate = static_cast<float>(run.at("lr").as_double()),
                                  .beta1 = static_cast<float>(beta1),
                                  .beta2 = static_cast<float>(beta2),
                                  .eps = static_cast<float>(run.at("eps").as_double()),
                                  .weight_decay = static_cast<float>(run.at("weight_decay").as_double()),
                                  .correction1 = static_cast<float>(1 - std::pow(beta1, step)),
                                  .correction2 = static_cast<float>(1 - std::pow(beta2, step))}});
  }
  Floats expected({6});
  for (int64_t r = 0; r < 2; ++r) row(run.at("expected_W_torch").as_array()[static_cast<size_t>(r)], expected, 3 * r);
  EXPECT_TRUE(close(w, expected, {1e-5, 1e-5}));
}

}  // namespace hone::test
