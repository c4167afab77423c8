#include "kernels/sampling/sample.h"

#include <map>

#include "core/base/parallel_for.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/logprob.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Outputs {
  Ids ids;
  Floats logp, truncated_logp, raw_logp;
  explicit Outputs(int64_t S)
      : ids({S}, -1), logp(poisoned({S})), truncated_logp(poisoned({S})), raw_logp(poisoned({S})) {}
};

Tensor bytes_of(std::vector<RowSamplingParams>& params) {
  return Tensor(params.data(), DType::u8, DeviceKind::cpu,
                {static_cast<int64_t>(params.size() * sizeof(RowSamplingParams))});
}

Outputs sample(const Tensor& logits, std::vector<RowSamplingParams> params) {
  Outputs out(logits.dim(0));
  sample_rows(cpu(), {.ids = out.ids,
                      .logp = out.logp,
                      .truncated_logp = out.truncated_logp,
                      .raw_logp = out.raw_logp,
                      .logits = logits,
                      .params = bytes_of(params)});
  return out;
}

void expect_equal(const Outputs& actual, const Outputs& expected) {
  for (int64_t r = 0; r < expected.ids.size(); ++r) EXPECT_EQ(actual.ids[r], expected.ids[r]) << "row " << r;
  EXPECT_TRUE(close(actual.logp, expected.logp, {0, 0}));
  EXPECT_TRUE(close(actual.truncated_logp, expected.truncated_logp, {0, 0}));
  EXPECT_TRUE(close(actual.raw_logp, expected.raw_logp, {0, 0}));
}

std::vector<RowSamplingParams> varied_params(int64_t count) {
  Rng rng(77);
  std::vector<RowSamplingParams> out;
  for (int64_t i = 0; i < count; ++i) {
    RowSamplingParams p{.seed = 5, .stream = static_cast<uint64_t>(i), .position = 9};
    p.temperature = std::array{0.0f, 1.0f, 0.7f, 2.0f}[rng.below(4)];
    p.top_p = std::array{1.0f, 1.0f, 0.9f, 0.999f, 0.1f}[rng.below(5)];
    p.min_p = std::array{0.0f, 0.0f, 0.05f}[rng.below(3)];
    p.top_k = std::array{0, 0, 1, 7, 300, 1 << 20}[rng.below(6)];
    out.push_back(p);
  }
  return out;
}

// The probabilities after truncation, as kernels/sampling/sample.h defines them.
std::map<int32_t, double> distribution(const Floats& logits, const RowSamplingParams& p) {
  std::vector<std::pair<double, int32_t>> order;  // (-weight, id)
  for (int32_t v = 0; v < logits.size(); ++v)
    order.emplace_back(-std::exp(static_cast<double>(logits[v]) / static_cast<double>(p.temperature)), v);
  std::sort(order.begin(), order.end());
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size()) order.resize(static_cast<size_t>(p.top_k));
  const auto mass = [&] {
    double sum = 0;
    for (const auto& [weight, id] : order) sum -= weight;
    return sum;
  };
  if (p.top_p < 1) {
    const double wanted = static_cast<double>(p.top_p) * mass();
    double sum = 0;
    size_t count = 0;
    while (count < order.size() && sum < wanted) sum -= order[count++].first;
    order.resize(count);
  }
  while (order.back().first > order.front().first * static_cast<double>(p.min_p)) order.pop_back();
  std::map<int32_t, double> out;
  for (const auto& [weight, id] : order) out[id] = -weight / mass();
  return out;
}

}  // namespace

[[maybe_unused]] const bool added = op_cases().add("sample_rows", [] {
  for (const int64_t V : {1, 2, 37, 1024, 5001})
    for (const float scale : {0.01f, 1.0f, 8.0f, 60.0f}) {
      const int64_t S = 25;
      Floats logits = normals({S, V}, static_cast<uint64_t>(V), scale, 3);
      for (int64_t i = 0; i < logits.size(); i += 11) logits[i] = i % V == 0 ? 0.5f : -infinity;
      for (int64_t i = 0; V > 100 && i + 1 < logits.size(); i += 5) logits[i] = logits[i + 1];  // ties
      std::vector<RowSamplingParams> params = varied_params(S);
      Outputs out(S);
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat("V ", V, ", scale ", scale));
      expect_bodies_agree(sample_rows, {0, 0},
                          {.ids = out.ids,
                           .logp = out.logp,
                           .truncated_logp = out.truncated_logp,
                           .raw_logp = out.raw_logp,
                           .logits = logits,
                           .params = bytes_of(params)});
    }
});

TEST(SampleRows, FrequenciesAreTheProbabilities) {
  const Floats logits = normals({1, 12}, 4, 1.5f);
  const int64_t draws = 20000;
  Floats rows({draws, 12});
  for (int64_t i = 0; i < rows.size(); ++i) rows[i] = logits[i % 12];
  for (const RowSamplingParams& p :
       {RowSamplingParams{}, RowSamplingParams{.temperature = 0.7f, .top_k = 5},
        RowSamplingParams{.temperature = 1.3f, .top_p = 0.8f}, RowSamplingParams{.min_p = 0.2f},
        RowSamplingParams{.temperature = 2, .top_p = 0.9f, .min_p = 0.1f, .top_k = 8}}) {
    std::vector<RowSamplingParams> params(static_cast<size_t>(draws), p);
    for (int64_t i = 0; i < draws; ++i)
      params[static_cast<size_t>(i)].seed = 3, params[static_cast<size_t>(i)].position = static_cast<uint64_t>(i);
    const Outputs out = sample(rows, params);
    const std::map<int32_t, double> expected = distribution(logits, p);
    std::map<int32_t, int64_t> counts;
    for (int64_t i = 0; i < draws; ++i) {
      ASSERT_TRUE(expected.contains(out.ids[i])) << "token " << out.ids[i] << " was truncated away";
      ++counts[out.ids[i]];
      ASSERT_NEAR(static_cast<double>(out.truncated_logp[i]), std::log(expected.at(out.ids[i])), 1e-5);
    }
    double chi_square = 0;
    for (const auto& [id, probability] : expected) {
      const double mean = probability * static_cast<double>(draws), difference = static_cast<double>(counts[id]) - mean;
      chi_square += difference * difference / mean;
    }
    // The statistic exceeds this bound once in ten thousand, for up to 11 degrees of freedom.
    EXPECT_LT(chi_square, 37.4) << "temperature " << p.temperature << ", top_k " << p.top_k << ", top_p " << p.top_p
                                << ", min_p " << p.min_p;
  }
}

TEST(SampleRows, LogpHasTheBitsOfLogprobForward) {
  const int64_t S = 6, V = 3001, D = 24;
  const Floats hidden = normals({S, D}, 1), w = normals({V, D}, 2);
  for (const float temperature : {0.0f, 1.0f, 0.6f}) {
    Floats logits = poisoned({S, V}), logp = poisoned({S}), raw_logp = poisoned({S}), lse = poisoned({S});
    gemm_forward(cpu(), {.y = logits, .x = hidden, .w = w});
    std::vector<RowSamplingParams> params(S, {.temperature = temperature, .top_p = 0.9f});
    for (size_t r = 0; r < params.size(); ++r) params[r].position = r;
    const Outputs out = sample(logits, params);
    logprob_forward(cpu(), {.logp = logp,
                            .lse = lse,
                            .hidden = hidden,
                            .w = w,
                            .targets = out.ids,
                            .inv_temperature = inverse_temperature(temperature)});
    logprob_forward(cpu(),
                    {.logp = raw_logp, .lse = lse, .hidden = hidden, .w = w, .targets = out.ids, .inv_temperature = 1});
    EXPECT_TRUE(close(out.logp, logp, {0, 0}));
    EXPECT_TRUE(close(out.raw_logp, raw_logp, {0, 0}));
  }
}

TEST(SampleRows, GreedyTakesTheLowestOfEquals) {
  Floats logits({2, 5}, 1.0f);
  logits[7] = 2, logits[9] = 2;
  const Outputs out = sample(logits, std::vector<RowSamplingParams>(2, {.temperature = 0}));
  EXPECT_EQ(out.ids[0], 0);
  EXPECT_EQ(out.ids[1], 2);
  EXPECT_EQ(out.truncated_logp[1], 0.0f);
  EXPECT_NEAR(static_cast<double>(out.logp[0]), std::log(0.2), 1e-6);
}

TEST(SampleRows, DrawsDoNotDependOnTheBatch) {
  const int64_t S = 33;
  const Floats logits = normals({S, 900}, 8, 2);
  const std::vector<RowSamplingParams> params = varied_params(S);
  set_num_threads(1);
  const Outputs whole = sample(logits, params);
  set_num_threads(2);
  expect_equal(sample(logits, params), whole);
  for (int64_t r = 0; r < S; ++r) {
    const Outputs one = sample(logits.tensor().rows(r, 1), {params[static_cast<size_t>(r)]});
    EXPECT_EQ(one.ids[0], whole.ids[r]);
    EXPECT_TRUE(same_bits(one.logp[0], whole.logp[r]) && same_bits(one.truncated_logp[0], whole.truncated_logp[r]));
  }
}

TEST(SampleRows, RefusesRowsWithoutADistribution) {
  Floats logits({1, 4}, 0.0f);
  logits[2] = nan_f32;
  EXPECT_THROW(sample(logits, {{}}), Error);
  logits[2] = infinity;
  EXPECT_THROW(sample(logits, {{}}), Error);
  EXPECT_THROW(sample(Floats({1, 4}, -infinity), {{}}), Error);
  const Floats good({1, 4}, 0.0f);
  EXPECT_THROW(sample(good, {{.temperature = -1}}), Error);
  EXPECT_THROW(sample(good, {{.top_p = 0}}), Error);
  EXPECT_THROW(sample(good, {{.min_p = nan_f32}}), Error);
  EXPECT_THROW(sample(good, {{.top_k = -1}}), Error);
}

}  // namespace hone::test
