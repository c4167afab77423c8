#include "kernels/lm_head/logprob.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Shape {
  int64_t R, V, D;
};
// One chunk and parts of it; more than one range of the vocabulary; more than one range of rows.
constexpr Shape shapes[] = {{1, 1, 1},      {0, 7, 3},      {1, 33, 5},      {5, 128, 8},     {7, 2500, 17},
                            {131, 300, 64}, {9, 16500, 40}, {2100, 130, 16}, {2048, 8300, 8}, {200, 1000, 520}};

struct Inputs {
  Floats hidden, w, dlogp, dentropy;
  Ids targets;
  Inputs(const Shape& s, DType dtype, float scale = 1)
      : hidden(
            rounded(normals({s.R, s.D}, 1, scale / std::sqrt(static_cast<float>(s.D)), s.D % 8 == 0 ? 8 : 3), dtype)),
        w(rounded(normals({s.V, s.D}, 2, 1, 8), dtype)),
        dlogp(normals({s.R}, 3)),
        dentropy(normals({s.R}, 4)),
        targets(random_ids(s.R, static_cast<int32_t>(s.V), 5)) {
    const int64_t edges[] = {0, 127, 128, s.V - 1, 8191, 8192, 16383};
    for (int64_t r = 0; r < std::min<int64_t>(s.R, std::ssize(edges)); ++r)
      targets[r] = static_cast<int32_t>(edges[r] % s.V);
    if (s.R > 4) dlogp[2] = 0, dentropy[2] = 0, dlogp[3] = 0;
  }
};

struct Columns {
  Floats logp, lse, entropy, hit;
  explicit Columns(int64_t R) : logp(poisoned({R})), lse(poisoned({R})), entropy(poisoned({R})), hit(poisoned({R})) {}
};

Columns on_cpu(const Inputs& in, float inv_temperature) {
  Columns out(in.targets.size());
  logprob_forward(cpu(), {.logp = out.logp,
                          .lse = out.lse,
                          .entropy = out.entropy,
                          .hit = out.hit,
                          .hidden = in.hidden,
                          .w = in.w,
                          .targets = in.targets,
                          .inv_temperature = inv_temperature});
  return out;
}
Columns on_gpu(const Tensor& hidden, const Tensor& w, const Tensor& targets, float inv_temperature,
               bool with_entropy = true) {
  const int64_t R = targets.size();
  OnGpu logp = OnGpu::poisoned({R}), lse = OnGpu::poisoned({R}), entropy = OnGpu::poisoned({R}),
        hit = OnGpu::poisoned({R});
  logprob_forward(*gpu(), {.logp = logp,
                           .lse = lse,
                           .entropy = with_entropy ? entropy.tensor() : Tensor(),
                           .hit = hit,
                           .hidden = hidden,
                           .w = w,
                           .targets = targets,
                           .inv_temperature = inv_temperature});
  Columns out(R);
  out.logp = logp.read(), out.lse = lse.read(), out.entropy = entropy.read(), out.hit = hit.read();
  return out;
}

struct Gradients {
  Floats logp, lse, dhidden, dw;
};
Gradients expected_gradients(const Inputs& in, const LogprobGrad& grad, float inv_temperature) {
  const Columns columns = on_cpu(in, inv_temperature);
  const int64_t V = in.w.tensor().dim(0), D = in.w.tensor().dim(1);
  Gradients out{columns.logp, columns.lse, poisoned({in.targets.size(), D}), normals({V, D}, 6)};
  logprob_backward(cpu(), {.dhidden = out.dhidden,
                           .dw = out.dw,
                           .grad = grad,
                           .lse = columns.lse,
                           .entropy = columns.entropy,
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = inv_temperature});
  return out;
}

}  // namespace

TEST(LogprobForwardOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const Shape& s : shapes)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const float inv_temperature : {1.0f, 1.6f}) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                           concat(s.R, " x ", s.V, " x ", s.D, " ", name_of(dtype)));
        const Inputs in(s, dtype, 4);
        const Columns expected = on_cpu(in, inv_temperature);
        const OnGpu hidden(in.hidden, dtype), w(in.w, dtype), targets(in.targets);
        const Columns out = on_gpu(hidden, w, targets, inv_temperature);
        EXPECT_TRUE(close(out.logp, expected.logp, {1e-5, 1e-4}));
        EXPECT_TRUE(close(out.lse, expected.lse, {1e-5, 1e-4}));
        EXPECT_TRUE(close(out.entropy, expected.entropy, {1e-5, 1e-4}));
        const Columns without = on_gpu(hidden, w, targets, inv_temperature, false);
        EXPECT_TRUE(close(without.logp, out.logp, {0, 0}));
        EXPECT_TRUE(close(without.lse, out.lse, {0, 0}));
      }
}

TEST(LogprobForwardOnGpu, RowsDoNotDependOnTheBatch) {
  HONE_GPU_OR_SKIP();
  const Shape s{300, 9001, 128};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Inputs in(s, dtype, 4);
    const OnGpu hidden(in.hidden, dtype), w(in.w, dtype), targets(in.targets);
    const Columns whole = on_gpu(hidden, w, targets, 0.8f);
    for (const int64_t count : {1, 2, 7, 64, 129, 299}) {
      const int64_t first = count * 31 % (s.R - count + 1);
      const Columns part = on_gpu(hidden.tensor().rows(first, count), w, targets.tensor().rows(first, count), 0.8f);
      for (int64_t r = 0; r < count; ++r) {
        ASSERT_TRUE(same_bits(part.logp[r], whole.logp[first + r])) << count << " rows";
        ASSERT_TRUE(same_bits(part.lse[r], whole.lse[first + r])) << count << " rows";
        ASSERT_TRUE(same_bits(part.entropy[r], whole.entropy[first + r])) << count << " rows";
      }
    }
  }
}

TEST(LogprobForwardOnGpu, TakesExtremeLogits) {
  HONE_GPU_OR_SKIP();
  const Shape s{6, 700, 8};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Inputs in(s, dtype);
    for (int64_t r = 0; r < s.R; ++r) in.hidden[r * s.D] = 1;
    for (int64_t v = 0; v < s.V; ++v)
      in.w[v * s.D] = v % 3 == 0 || v / 128 == 2 ? -infinity : v == 400 ? 10000.0f : -10000.0f;
    in.targets[0] = 400, in.targets[1] = 3;
    in.w = rounded(in.w, dtype);
    const Columns expected = on_cpu(in, 1),
                  out = on_gpu(OnGpu(in.hidden, dtype), OnGpu(in.w, dtype), OnGpu(in.targets), 1);
    for (int64_t r = 0; r < s.R; ++r) {
      EXPECT_NEAR(out.lse[r], expected.lse[r], 2e-3) << r;
      EXPECT_NEAR(out.entropy[r], expected.entropy[r], 1e-5) << r;
      if (std::isinf(expected.logp[r]))
        EXPECT_EQ(out.logp[r], expected.logp[r]) << r;
      else
        EXPECT_NEAR(out.logp[r], expected.logp[r], 1e-5 * std::fabs(expected.logp[r])) << r;
    }
    EXPECT_EQ(out.logp[0], 0.0f);
  }
}

TEST(LogprobForwardOnGpu, KeepsNanToItsRow) {
  HONE_GPU_OR_SKIP();
  const Shape s{5, 300, 16};
  Inputs in(s, DType::bf16);
  in.hidden[2 * s.D + 3] = nan_f32;
  const Columns out = on_gpu(OnGpu(in.hidden, DType::bf16), OnGpu(in.w, DType::bf16), OnGpu(in.targets), 1);
  for (int64_t r = 0; r < s.R; ++r) EXPECT_EQ(std::isnan(out.logp[r]) && std::isnan(out.lse[r]), r == 2) << r;
}

TEST(LogprobBackwardOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const Shape& s : shapes)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool with_entropy : {false, true}) {
        if (!chosen()) continue;
        const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                           concat(s.R, " x ", s.V, " x ", s.D, " ", name_of(dtype), with_entropy));
        const float inv_temperature = 0.8f, z_loss = with_entropy ? 0.02f : 0;
        const Inputs in(s, dtype, 2);
        const Gradients expected =
            expected_gradients(in, {in.dlogp, with_entropy ? in.dentropy.tensor() : Tensor(), z_loss}, inv_temperature);
        const Columns columns = on_cpu(in, inv_temperature);
        const OnGpu dlogp(in.dlogp), dentropy(in.dentropy);
        OnGpu dhidden = OnGpu::poisoned({s.R, s.D}, with_entropy ? dtype : DType::f32, 8), dw(normals({s.V, s.D}, 6));
        logprob_backward(*gpu(), {.dhidden = dhidden,
                                  .dw = dw,
                                  .grad = {dlogp, with_entropy ? dentropy.tensor() : Tensor(), z_loss},
                                  .lse = OnGpu(columns.lse),
                                  .entropy = with_entropy ? OnGpu(columns.entropy).tensor() : Tensor(),
                                  .hidden = OnGpu(in.hidden, dtype),
                                  .w = OnGpu(in.w, dtype),
                                  .targets = OnGpu(in.targets),
                                  .inv_temperature = inv_temperature});
        EXPECT_TRUE(agrees(dhidden.read(), expected.dhidden, dtype));
        EXPECT_TRUE(agrees(dw.read(), expected.dw, dtype));
      }
}

TEST(LogprobFusedOnGpu, HasTheBitsOfForwardAndTheGradientOfTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const Shape& s : shapes)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const float scale : {2.0f, 60.0f}) {  // at 60 log-probs lie below -100
        if (!chosen()) continue;
        const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                           concat(s.R, " x ", s.V, " x ", s.D, " ", name_of(dtype), " scale ", scale));
        const Inputs in(s, dtype, scale);
        const float inv_temperature = 1.25f;
        // Gradients cancel, and logits of several hundred have few fraction bits.
        const double factor = scale > 10 && dtype == DType::f32 ? 100 : 3;
        // The second z_loss makes the factor of p zero, or almost zero, in the first row.
        for (const float z_loss : {0.01f, s.R == 0 ? 0.0f : 0.5f / on_cpu(in, inv_temperature).lse[0]}) {
          const Gradients expected = expected_gradients(in, {in.dlogp, {}, z_loss}, inv_temperature);
          const OnGpu hidden(in.hidden, dtype), w(in.w, dtype), targets(in.targets), dlogp(in.dlogp);
          const Columns forward = on_gpu(hidden, w, targets, inv_temperature, false);
          OnGpu logp = OnGpu::poisoned({s.R}), lse = OnGpu::poisoned({s.R}), hit = OnGpu::poisoned({s.R}),
                dhidden = OnGpu::poisoned({s.R, s.D}, dtype, 8), dw(normals({s.V, s.D}, 6));
          logprob_fused(*gpu(), {.logp = logp,
                                 .lse = lse,
                                 .hit = hit,
                                 .dhidden = dhidden,
                                 .dw = dw,
                                 .grad = {dlogp, {}, z_loss},
                                 .hidden = hidden,
                                 .w = w,
                                 .targets = targets,
                                 .inv_temperature = inv_temperature});
          EXPECT_TRUE(close(logp.read(), forward.logp, {0, 0}));
          EXPECT_TRUE(close(lse.read(), forward.lse, {0, 0}));
          EXPECT_TRUE(close(hit.read(), forward.hit, {0, 0}));
          EXPECT_TRUE(agrees(dhidden.read(), expected.dhidden, dtype, factor));
          EXPECT_TRUE(agrees(dw.read(), expected.dw, dtype, factor));
        }
      }
}

TEST(LogprobFusedOnGpu, TakesAGradientOfEntropy) {
  HONE_GPU_OR_SKIP();
  const Shape s{40, 700, 32};
  const Inputs in(s, DType::bf16, 2);
  const Gradients expected = expected_gradients(in, {in.dlogp, in.dentropy, 0.01f}, 1);
  const OnGpu dlogp(in.dlogp), dentropy(in.dentropy);
  OnGpu logp = OnGpu::poisoned({s.R}), lse = OnGpu::poisoned({s.R}), dhidden = OnGpu::poisoned({s.R, s.D}, DType::bf16),
        dw(normals({s.V, s.D}, 6));
  logprob_fused(*gpu(), {.logp = logp,
                         .lse = lse,
                         .dhidden = dhidden,
                         .dw = dw,
                         .grad = {dlogp, dentropy, 0.01f},
                         .hidden = OnGpu(in.hidden, DType::bf16),
                         .w = OnGpu(in.w, DType::bf16),
                         .targets = OnGpu(in.targets),
                         .inv_temperature = 1});
  EXPECT_TRUE(close(logp.read(), expected.logp, {1e-5, 1e-4}));
  EXPECT_TRUE(agrees(dhidden.read(), expected.dhidden, DType::bf16));
  EXPECT_TRUE(agrees(dw.read(), expected.dw, DType::bf16));
}

// The first block of rows writes the gradient, the others add.
TEST(LogprobFusedOnGpu, WritesWhatItAddsToZeros) {
  HONE_GPU_OR_SKIP();
  for (const int64_t R : {0, 300, 5000}) {
    const Shape s{R, 700, 64};
    const Inputs in(s, DType::bf16, 2);
    OnGpu written = OnGpu::poisoned({s.V, s.D}), sum(Floats({s.V, s.D}));
    for (const bool accumulate : {false, true}) {
      OnGpu logp = OnGpu::poisoned({s.R}), lse = OnGpu::poisoned({s.R}),
            dhidden = OnGpu::poisoned({s.R, s.D}, DType::bf16);
      logprob_fused(*gpu(), {.logp = logp,
                             .lse = lse,
                             .dhidden = dhidden,
                             .dw = {accumulate ? sum : written, accumulate},
                             .grad = {OnGpu(in.dlogp), {}, 0.01f},
                             .hidden = OnGpu(in.hidden, DType::bf16),
                             .w = OnGpu(in.w, DType::bf16),
                             .targets = OnGpu(in.targets),
                             .inv_temperature = 1});
    }
    const Floats alone = written.read(), added = sum.read();
    for (int64_t i = 0; i < added.size(); ++i) ASSERT_EQ(alone[i], added[i]) << R << " rows, element " << i;
  }
}

TEST(LogprobFusedOnGpu, GivesTheSameBitsAgain) {
  HONE_GPU_OR_SKIP();
  const Shape s{700, 9000, 64};
  const Inputs in(s, DType::bf16, 3);
  const auto run = [&] {
    OnGpu logp = OnGpu::poisoned({s.R}), lse = OnGpu::poisoned({s.R}),
          dhidden = OnGpu::poisoned({s.R, s.D}, DType::bf16), dw(normals({s.V, s.D}, 6));
    logprob_fused(*gpu(), {.logp = logp,
                           .lse = lse,
                           .dhidden = dhidden,
                           .dw = dw,
                           .grad = {OnGpu(in.dlogp), {}, 0.01f},
                           .hidden = OnGpu(in.hidden, DType::bf16),
                           .w = OnGpu(in.w, DType::bf16),
                           .targets = OnGpu(in.targets),
                           .inv_temperature = 1});
    return std::array{dhidden.read(), dw.read()};
  };
  const auto first = run(), second = run();
  EXPECT_TRUE(close(second[0], first[0], {0, 0}));
  EXPECT_TRUE(close(second[1], first[1], {0, 0}));
}

}  // namespace hone::test
