#include "kernels/sampling/logits_logprob.h"

#include <numeric>

#include "kernels/sampling/sample.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Scores {
  Floats logp, raw_logp, top_logp;
  Ids top_ids;
  Scores(int64_t S, int64_t n)
      : logp(poisoned({S})), raw_logp(poisoned({S})), top_logp(poisoned({S, n}, 3)), top_ids({S, n}, -7) {}
};

Tensor bytes_of(std::vector<RowSamplingParams>& params) {
  return Tensor(params.data(), DType::u8, DeviceKind::cpu,
                {static_cast<int64_t>(params.size() * sizeof(RowSamplingParams))});
}

Scores score(const Tensor& logits, const Ids& ids, int64_t n, std::vector<RowSamplingParams> params) {
  Scores out(logits.dim(0), n);
  logits_logprob(cpu(), {.logp = out.logp,
                         .raw_logp = out.raw_logp,
                         .top_ids = out.top_ids,
                         .top_logp = out.top_logp,
                         .logits = logits,
                         .ids = ids,
                         .params = bytes_of(params)});
  return out;
}

}  // namespace

[[maybe_unused]] const bool added = op_cases().add("logits_logprob", [] {
  for (const int64_t V : {1, 2, 61, 3001}) {
    const int64_t S = 6, n = std::min<int64_t>(V, 20);
    Floats logits = normals({S, V}, static_cast<uint64_t>(V), 3, 5);
    for (int64_t i = 0; V > 100 && i + 1 < logits.size(); i += 3) logits[i] = logits[i + 1];  // ties
    const Ids ids = random_ids(S, static_cast<int32_t>(V), 3);
    std::vector<RowSamplingParams> params(S);
    for (size_t r = 0; r < params.size(); ++r) params[r].temperature = std::array{0.0f, 1.0f, 0.7f}[r % 3];
    const Scores out(S, n);
    expect_bodies_agree(logits_logprob, {0, 0},
                        {.logp = out.logp,
                         .raw_logp = out.raw_logp,
                         .top_ids = out.top_ids,
                         .top_logp = out.top_logp,
                         .logits = logits,
                         .ids = ids,
                         .params = bytes_of(params)});
    for (int64_t r = 0; r < S; ++r) {
      const auto log_softmax = [&](int64_t id, double temperature) {
        double sum = 0;
        for (int64_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(logits[r * V + v]) / temperature);
        return static_cast<double>(logits[r * V + id]) / temperature - std::log(sum);
      };
      const float temperature = params[static_cast<size_t>(r)].temperature;
      EXPECT_NEAR(static_cast<double>(out.logp[r]),
                  log_softmax(ids[r], temperature == 0 ? 1 : static_cast<double>(temperature)), 1e-4);
      EXPECT_NEAR(static_cast<double>(out.raw_logp[r]), log_softmax(ids[r], 1), 1e-4);
      std::vector<int32_t> order(static_cast<size_t>(V));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return logits[r * V + a] > logits[r * V + b]; });
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(out.top_ids[r * n + i], order[static_cast<size_t>(i)]) << "row " << r << " place " << i;
        EXPECT_NEAR(static_cast<double>(out.top_logp[r * n + i]), log_softmax(order[static_cast<size_t>(i)], 1), 1e-4);
      }
    }
    EXPECT_TRUE(out.top_logp.gaps_intact());
  }
});

TEST(ScoreRows, HasTheBitsOfSampleRows) {
  const int64_t S = 9, V = 5001;
  const Floats logits = normals({S, V}, 8, 2);
  std::vector<RowSamplingParams> params(S);
  for (size_t r = 0; r < params.size(); ++r)
    params[r] = {.temperature = std::array{0.0f, 1.0f, 1.1f}[r % 3], .position = r};
  Ids ids({S});
  Floats logp = poisoned({S}), truncated_logp = poisoned({S}), raw_logp = poisoned({S});
  sample_rows(cpu(), {.ids = ids,
                      .logp = logp,
                      .truncated_logp = truncated_logp,
                      .raw_logp = raw_logp,
                      .logits = logits,
                      .params = bytes_of(params)});
  const Scores out = score(logits, ids, 0, params);
  EXPECT_TRUE(close(out.logp, logp, {0, 0}));
  EXPECT_TRUE(close(out.raw_logp, raw_logp, {0, 0}));
}

TEST(ScoreRows, WhatHasNoDistributionAndNoIdIsNaN) {
  Floats logits({4, 3}, 1);
  logits[3] = nan_f32, logits[6] = infinity;
  logits[9] = -infinity;  // a token of probability 0
  Ids ids({4}, 0);
  ids[0] = 3;
  const Scores out = score(logits, ids, 3, std::vector<RowSamplingParams>(4));
  EXPECT_TRUE(std::isnan(out.logp[0]) && std::isnan(out.raw_logp[0]));
  EXPECT_NEAR(static_cast<double>(out.top_logp[0]), -std::log(3.0), 1e-6);
  for (int64_t r = 1; r < 3; ++r) {
    EXPECT_TRUE(std::isnan(out.logp[r]) && std::isnan(out.raw_logp[r]) && std::isnan(out.top_logp[3 * r])) << r;
    EXPECT_EQ(out.top_ids[3 * r], -1);
  }
  EXPECT_EQ(out.logp[3], -infinity);
  EXPECT_EQ(out.top_ids[9 + 2], 0);  // last
}

TEST(ScoreRows, MoreThanTheVocabularyIsAnError) {
  EXPECT_THROW(score(Floats({1, 3}), Ids({1}), 4, std::vector<RowSamplingParams>(1)), Error);
  EXPECT_THROW(score(Floats({1, 300}), Ids({1}), 65, std::vector<RowSamplingParams>(1)), Error);
}

}  // namespace hone::test
