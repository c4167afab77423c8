#include "kernels/lm_head/logprob.h"

#include "core/base/parallel_for.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "kernels/lm_head/logsumexp.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

struct Shape {
  int64_t R, V, D;
};
constexpr Shape shapes[] = {{1, 1, 1}, {0, 7, 3}, {1, 33, 5}, {5, 1024, 8}, {7, 2500, 17}, {40, 130, 33}};

// The lm_head in double, by the formulas of kernels/lm_head/logprob.h.
struct Reference {
  std::vector<double> logp, lse, entropy, dhidden, dw;
  std::vector<float> hit;
  Reference(const Floats& hidden, const Floats& w, const Ids& targets, float inv_temperature,
            const Floats* dlogp = nullptr, const Floats* dentropy = nullptr, float z_loss = 0) {
    const int64_t R = targets.size(), D = w.tensor().dim(1), V = w.tensor().dim(0);
    dhidden.resize(static_cast<size_t>(R * D)), dw.resize(static_cast<size_t>(V * D));
    for (int64_t r = 0; r < R; ++r) {
      std::vector<double> z(static_cast<size_t>(V));
      for (int64_t v = 0; v < V; ++v)
        for (int64_t d = 0; d < D; ++d)
          z[static_cast<size_t>(v)] += static_cast<double>(hidden[r * D + d]) * static_cast<double>(w[v * D + d]) *
                                       static_cast<double>(inv_temperature);
      const double max = *std::max_element(z.begin(), z.end());
      double sum = 0, mean = 0;
      for (const double x : z) sum += std::exp(x - max);
      lse.push_back(max + std::log(sum));
      for (const double x : z) mean += std::exp(x - lse.back()) * x;
      entropy.push_back(lse.back() - mean);
      logp.push_back(z[static_cast<size_t>(targets[r])] - lse.back());
      hit.push_back(z[static_cast<size_t>(targets[r])] == max ? 1 : 0);
      for (int64_t v = 0; dlogp && v < V; ++v) {
        const double log_p = z[static_cast<size_t>(v)] - lse.back(), p = std::exp(log_p),
                     g = static_cast<double>((*dlogp)[r]);
        double dz =
            g * ((v == targets[r] ? 1 : 0) - p) + 2 * static_cast<double>(z_loss) * std::fabs(g) * lse.back() * p;
        if (dentropy) dz -= static_cast<double>((*dentropy)[r]) * p * (log_p + entropy.back());
        for (int64_t d = 0; d < D; ++d) {
          dhidden[static_cast<size_t>(r * D + d)] +=
              dz * static_cast<double>(inv_temperature) * static_cast<double>(w[v * D + d]);
          dw[static_cast<size_t>(v * D + d)] +=
              dz * static_cast<double>(inv_temperature) * static_cast<double>(hidden[r * D + d]);
        }
      }
    }
  }
};

struct Inputs {
  Floats hidden, w, dlogp, dentropy;
  Ids targets;
  explicit Inputs(const Shape& s, float scale = 1)
      : hidden(normals({s.R, s.D}, 1, scale, 3)),
        w(normals({s.V, s.D}, 2, 1, 2)),
        dlogp(normals({s.R}, 3)),
        dentropy(normals({s.R}, 4)),
        targets(random_ids(s.R, static_cast<int32_t>(s.V), 5)) {}
};

}  // namespace

TEST(LogSumExp, FastChunkHasTheBitsOfTheSpecification) {
  for (const int64_t count : {1, 2, 15, 16, 17, 500, 1023, 1024}) {
    Floats logits = normals({count}, static_cast<uint64_t>(count), 5);
    if (count > 20) logits[3] = -std::numeric_limits<float>::infinity(), logits[7] = -300;
    for (const float inv_temperature : {1.0f, 0.7f}) {
      const LogSumExp plain = log_sum_exp_chunk_specification(&logits[0], count, inv_temperature),
                      fast = log_sum_exp_chunk(&logits[0], count, inv_temperature);
      EXPECT_TRUE(same_bits(plain.max, fast.max)) << count;
      EXPECT_TRUE(same_bits(plain.sum, fast.sum)) << count;
      EXPECT_TRUE(same_bits(plain.weighted, fast.weighted)) << count;
    }
  }
}

TEST(LogSumExp, MinusInfinityHasNoWeightAndNanStays) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits(3000, -infinity);
  const auto sums = [&] { return log_sum_exp(logits.data(), static_cast<int64_t>(logits.size()), 1); };
  EXPECT_EQ(sums().value(), -infinity);
  logits[2500] = 1.5f;
  EXPECT_EQ(sums().value(), 1.5f);
  EXPECT_EQ(sums().entropy(), 0.0f);
  logits[10] = nan_f32;
  EXPECT_TRUE(std::isnan(sums().value()));
  logits[10] = infinity;
  EXPECT_TRUE(std::isnan(sums().value()));
}

// Numbers from the tests of another framework.
TEST(LogSumExp, EntropyAgreesWithPublishedNumbers) {
  HONE_SHARED_OR_SKIP(path, "vectors/a5/compute_entropy.json");
  const Json all = parse_json(read_file(path), path.string());
  const JsonArray& logits = all.at("inputs").at("logits").at("data").as_array();
  const JsonArray& expected = all.at("expected").at("entropy").at("data").as_array();
  const size_t vocabulary = logits.size() / expected.size();
  ASSERT_EQ(vocabulary, 100u);
  for (size_t r = 0; r < expected.size(); ++r) {
    std::vector<float> row;
    for (size_t v = 0; v < vocabulary; ++v) row.push_back(static_cast<float>(logits[r * vocabulary + v].as_double()));
    EXPECT_NEAR(log_sum_exp(row.data(), static_cast<int64_t>(vocabulary), 1).entropy(), expected[r].as_double(), 1e-5)
        << r;
  }
}

TEST(LogprobForward, IsLogSoftmaxInDouble) {
  for (const Shape& s : shapes)
    for (const float inv_temperature : {1.0f, 1.6f}) {
      const Inputs in(s);
      const Reference expected(in.hidden, in.w, in.targets, inv_temperature);
      each_cpu_body(logprob_forward, [&](auto run, const std::string&) {
        Floats logp = poisoned({s.R}), lse = poisoned({s.R}), entropy = poisoned({s.R}), hit = poisoned({s.R});
        if (!run({.logp = logp,
                  .lse = lse,
                  .entropy = entropy,
                  .hit = hit,
                  .hidden = in.hidden,
                  .w = in.w,
                  .targets = in.targets,
                  .inv_temperature = inv_temperature}))
          return;
        EXPECT_TRUE(close(logp, expected.logp, {1e-5, 2e-5}));
        EXPECT_TRUE(close(lse, expected.lse, {1e-5, 2e-5}));
        EXPECT_TRUE(close(entropy, expected.entropy, {1e-5, 2e-5}));
        for (int64_t r = 0; r < s.R; ++r) EXPECT_EQ(hit[r], expected.hit[static_cast<size_t>(r)]) << r;
      });
    }
}

[[maybe_unused]] const bool forward_case = op_cases().add("logprob_forward", [] {
  for (const float softcap : {0.0f, 2.0f})
    for (const Shape& s : shapes) {
      const Inputs in(s, 3);
      Floats logp = poisoned({s.R}), lse = poisoned({s.R}), entropy = poisoned({s.R}), hit = poisoned({s.R});
      expect_bodies_agree(logprob_forward, {0, 0},
                          {.logp = logp,
                           .lse = lse,
                           .entropy = entropy,
                           .hit = hit,
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = 0.8f,
                           .softcap = softcap});
      expect_bodies_agree(logprob_forward, {0, 0},
                          {.logp = logp,
                           .lse = lse,
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = 0.8f,
                           .softcap = softcap});
    }
});

TEST(LogprobForward, RowsDoNotDependOnTheBatch) {
  const Shape s{70, 3001, 40};
  const Inputs in(s);
  const auto forward = [&](int64_t first, int64_t count) {
    Floats logp = poisoned({count}), lse = poisoned({count}), entropy = poisoned({count});
    logprob_forward(cpu(), {.logp = logp,
                            .lse = lse,
                            .entropy = entropy,
                            .hidden = in.hidden.tensor().rows(first, count),
                            .w = in.w,
                            .targets = in.targets.tensor().rows(first, count),
                            .inv_temperature = 1});
    return std::array{logp, lse, entropy};
  };
  set_num_threads(1);
  const auto whole = forward(0, s.R);
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (const int64_t count : {1, 2, 3, 8, 9, 17, 64, 70}) {
      const int64_t first = (count * 31) % (s.R - count + 1);
      const auto part = forward(first, count);
      for (size_t output = 0; output < part.size(); ++output)
        for (int64_t r = 0; r < count; ++r)
          ASSERT_TRUE(same_bits(part[output][r], whole[output][first + r])) << count << " rows, output " << output;
    }
  }
}

TEST(LogprobForward, RefusesATargetOutsideTheVocabulary) {
  const Inputs in({2, 5, 3});
  Ids targets = in.targets;
  targets[1] = 5;
  Floats logp({2}), lse({2});
  EXPECT_THROW(
      logprob_forward(
          cpu(), {.logp = logp, .lse = lse, .hidden = in.hidden, .w = in.w, .targets = targets, .inv_temperature = 1}),
      Error);
  targets[1] = -1;
  EXPECT_THROW(
      logprob_forward(
          cpu(), {.logp = logp, .lse = lse, .hidden = in.hidden, .w = in.w, .targets = targets, .inv_temperature = 1}),
      Error);
}

[[maybe_unused]] const bool backward_case = op_cases().add("logprob_backward", [] {
  for (const float softcap : {0.0f, 2.0f})
    for (const Shape& s : shapes) {
      const Inputs in(s);
      Floats logp = poisoned({s.R}), lse = poisoned({s.R}), entropy = poisoned({s.R}),
             dhidden = poisoned({s.R, s.D}, 1), dw = normals({s.V, s.D}, 6, 1, 2);
      logprob_forward(cpu(), {.logp = logp,
                              .lse = lse,
                              .entropy = entropy,
                              .hidden = in.hidden,
                              .w = in.w,
                              .targets = in.targets,
                              .inv_temperature = 0.8f,
                              .softcap = softcap});
      expect_bodies_agree(logprob_backward, {1e-4, 1e-4},
                          {.dhidden = dhidden,
                           .dw = dw,
                           .grad = {in.dlogp, in.dentropy, 0.1f},
                           .lse = lse,
                           .entropy = entropy,
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = 0.8f,
                           .softcap = softcap});
      expect_bodies_agree(logprob_backward, {1e-4, 1e-4},
                          {.dhidden = dhidden,
                           .dw = {poisoned({s.V, s.D}, 2), false},
                           .grad = {in.dlogp, {}, 0},
                           .lse = lse,
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = 0.8f,
                           .softcap = softcap});
      expect_bodies_agree(logprob_backward, {1e-4, 1e-4},
                          {.dhidden = dhidden,
                           .dw = dw,
                           .grad = {in.dlogp, {}, 0},
                           .lse = lse,
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = 0.8f,
                           .softcap = softcap});
    }
});

[[maybe_unused]] const bool fused_case = op_cases().add("logprob_fused", [] {
  for (const float softcap : {0.0f, 2.0f})
    for (const Shape& s : shapes) {
      const Inputs in(s);
      Floats logp = poisoned({s.R}), lse = poisoned({s.R}), hit = poisoned({s.R}), dhidden = poisoned({s.R, s.D}, 1),
             dw = normals({s.V, s.D}, 6, 1, 2);
      expect_bodies_agree(logprob_fused, {1e-4, 1e-4},
                          {.logp = logp,
                           .lse = lse,
                           .hit = hit,
                           .dhidden = dhidden,
                           .dw = dw,
                           .grad = {in.dlogp, {}, 0.1f},
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = 0.8f,
                           .softcap = softcap});
      expect_bodies_agree(logprob_fused, {1e-4, 1e-4},
                          {.logp = logp,
                           .lse = lse,
                           .hit = hit,
                           .dhidden = dhidden,
                           .dw = {poisoned({s.V, s.D}, 2), false},
                           .grad = {in.dlogp, {}, 0.1f},
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = 0.8f,
                           .softcap = softcap});
    }
});

// The first block of rows writes, the others add.
TEST(LogprobBackward, WritesTheSumOfItsBlocks) {
  const Shape s{9, (int64_t{1} << 22) - 5, 1};  // a block has at most 2^25 logits: 8 rows
  const Inputs in(s);
  Floats logp = poisoned({s.R}), lse = poisoned({s.R}), dhidden = poisoned({s.R, s.D}), written = poisoned({s.V, s.D}),
         sum({s.V, s.D});
  for (const bool accumulate : {false, true})
    logprob_fused(cpu(), {.logp = logp,
                          .lse = lse,
                          .dhidden = dhidden,
                          .dw = {accumulate ? sum : written, accumulate},
                          .grad = {in.dlogp, {}, 0},
                          .hidden = in.hidden,
                          .w = in.w,
                          .targets = in.targets,
                          .inv_temperature = 1});
  int64_t differing = 0;
  for (int64_t i = 0; i < sum.size(); ++i) differing += written[i] != sum[i];
  EXPECT_EQ(differing, 0);
}

TEST(LogprobBackward, IsTheGradientInDouble) {
  for (const Shape& s : shapes)
    for (const bool with_entropy : {false, true}) {
      Inputs in(s);
      if (s.R > 2) in.dlogp[1] = 0, in.dentropy[1] = 0;
      const float inv_temperature = 1.25f, z_loss = 0.3f;
      const Reference expected(in.hidden, in.w, in.targets, inv_temperature, &in.dlogp,
                               with_entropy ? &in.dentropy : nullptr, z_loss);
      const LogprobGrad grad{in.dlogp, with_entropy ? in.dentropy.tensor() : Tensor(), z_loss};
      Floats logp = poisoned({s.R}), lse = poisoned({s.R}), entropy = poisoned({s.R});
      logprob_forward(cpu(), {.logp = logp,
                              .lse = lse,
                              .entropy = entropy,
                              .hidden = in.hidden,
                              .w = in.w,
                              .targets = in.targets,
                              .inv_temperature = inv_temperature});
      const Tolerance tolerance{1e-4, 1e-4};
      each_cpu_body(logprob_backward, [&](auto run, const std::string&) {
        Floats dhidden = poisoned({s.R, s.D}, 1), dw({s.V, s.D}, 0, 2);
        if (!run({.dhidden = dhidden,
                  .dw = dw,
                  .grad = grad,
                  .lse = lse,
                  .entropy = with_entropy ? entropy.tensor() : Tensor(),
                  .hidden = in.hidden,
                  .w = in.w,
                  .targets = in.targets,
                  .inv_temperature = inv_temperature}))
          return;
        EXPECT_TRUE(close(dhidden, expected.dhidden, tolerance));
        EXPECT_TRUE(close(dw, expected.dw, tolerance));
      });
      each_cpu_body(logprob_fused, [&](auto run, const std::string&) {
        Floats logp_too = poisoned({s.R}), lse_too = poisoned({s.R}), dhidden = poisoned({s.R, s.D}, 1),
               dw({s.V, s.D}, 0, 2);
        if (!run({.logp = logp_too,
                  .lse = lse_too,
                  .dhidden = dhidden,
                  .dw = dw,
                  .grad = grad,
                  .hidden = in.hidden,
                  .w = in.w,
                  .targets = in.targets,
                  .inv_temperature = inv_temperature}))
          return;
        EXPECT_TRUE(close(logp_too, logp, {0, 0}));
        EXPECT_TRUE(close(lse_too, lse, {0, 0}));
        EXPECT_TRUE(close(dhidden, expected.dhidden, tolerance));
        EXPECT_TRUE(close(dw, expected.dw, tolerance));
      });
    }
}

static void expect_slope(float softcap) {
  const Shape s{3, 19, 4};
  Inputs in(s);
  const float z_loss = 0.1f;
  Floats logp({s.R}), lse({s.R}), entropy({s.R});
  const auto loss = [&] {
    logprob_forward(cpu(), {.logp = logp,
                            .lse = lse,
                            .entropy = entropy,
                            .hidden = in.hidden,
                            .w = in.w,
                            .targets = in.targets,
                            .inv_temperature = 0.9f,
                            .softcap = softcap});
    double sum = 0;
    for (int64_t r = 0; r < s.R; ++r) {
      const double g = static_cast<double>(in.dlogp[r]), l = static_cast<double>(lse[r]);
      sum += g * static_cast<double>(logp[r]) + static_cast<double>(in.dentropy[r]) * static_cast<double>(entropy[r]) +
             static_cast<double>(z_loss) * std::fabs(g) * l * l;
    }
    return sum;
  };
  loss();
  Floats dhidden = poisoned({s.R, s.D}), dw({s.V, s.D});
  logprob_backward(cpu(), {.dhidden = dhidden,
                           .dw = dw,
                           .grad = {in.dlogp, in.dentropy, z_loss},
                           .lse = lse,
                           .entropy = entropy,
                           .hidden = in.hidden,
                           .w = in.w,
                           .targets = in.targets,
                           .inv_temperature = 0.9f,
                           .softcap = softcap});
  expect_gradient(loss, in.hidden, dhidden);
  expect_gradient(loss, in.w, dw);
}

TEST(LogprobBackward, IsTheSlopeOfForward) { expect_slope(0); }
TEST(LogprobBackward, IsTheSlopeOfForwardWithASoftcap) { expect_slope(1.5f); }

TEST(LogprobBackward, DoesNotDependOnThreads) {
  const Shape s{65, 1500, 40};
  const Inputs in(s);
  const auto run = [&](int threads) {
    set_num_threads(threads);
    Floats logp({s.R}), lse({s.R}), dhidden = poisoned({s.R, s.D}), dw = normals({s.V, s.D}, 9);
    logprob_fused(cpu(), {.logp = logp,
                          .lse = lse,
                          .dhidden = dhidden,
                          .dw = dw,
                          .grad = {in.dlogp, {}, 0.1f},
                          .hidden = in.hidden,
                          .w = in.w,
                          .targets = in.targets,
                          .inv_temperature = 1});
    return std::array{dhidden, dw};
  };
  const auto one = run(1), two = run(2);
  EXPECT_TRUE(close(two[0], one[0], {0, 0}));
  EXPECT_TRUE(close(two[1], one[1], {0, 0}));
}

}  // namespace hone::test
