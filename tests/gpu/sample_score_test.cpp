#include "kernels/sampling/logits_logprob.h"
#include "kernels/sampling/sample.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

struct Scores {
  Floats logp, raw_logp, top_logp;
  Ids top_ids;
};

Tensor bytes_of(std::vector<RowSamplingParams>& params) {
  return Tensor(params.data(), DType::u8, DeviceKind::cpu,
                {static_cast<int64_t>(params.size() * sizeof(RowSamplingParams))});
}

struct ParamsThere {
  Buffer memory;
  Tensor tensor;
  explicit ParamsThere(std::vector<RowSamplingParams> params)
      : memory(gpu()->device(), params.size() * sizeof(RowSamplingParams)),
        tensor(memory.data(), DType::u8, DeviceKind::cuda,
               {static_cast<int64_t>(params.size() * sizeof(RowSamplingParams))}) {
    if (!params.empty()) gpu()->copy(tensor, bytes_of(params));
  }
};

Scores score_on_gpu(const Tensor& logits, const Tensor& ids, int64_t n, const std::vector<RowSamplingParams>& params) {
  const int64_t S = logits.dim(0);
  OnGpu logp = OnGpu::poisoned({S}), raw_logp = OnGpu::poisoned({S}), top_logp = OnGpu::poisoned({S, n}, DType::f32, 3),
        top_ids(Ids({S, n}, -7));
  logits_logprob(*gpu(), {.logp = logp,
                          .raw_logp = raw_logp,
                          .top_ids = top_ids,
                          .top_logp = top_logp,
                          .logits = logits,
                          .ids = ids,
                          .params = ParamsThere(params).tensor});
  return {logp.read(), raw_logp.read(), top_logp.read(), top_ids.read_ids()};
}

std::vector<RowSamplingParams> temperatures(int64_t count) {
  std::vector<RowSamplingParams> out(static_cast<size_t>(count));
  for (size_t r = 0; r < out.size(); ++r)
    out[r] = {.temperature = std::array{0.0f, 1.0f, 0.7f}[r % 3], .top_p = 0.9f, .position = r};
  return out;
}

TEST(ScoreRowsOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const int64_t V : {1, 2, 37, 64, 1024, 5001, 151936})
    for (const int64_t wanted : {0, 1, 5, 20, 64}) {
      if (!chosen()) continue;
      const int64_t S = V > 100000 ? 3 : 12, n = std::min(V, wanted);
      Floats logits = normals({S, V}, static_cast<uint64_t>(V), 3, V % 2 == 0 ? 4 : 3);
      for (int64_t i = 0; V > 30 && i + 1 < logits.size(); i += 3) logits[i] = logits[i + 1];  // ties
      for (int64_t i = 0; V > 30 && i < logits.size(); i += 11) logits[i] = -std::numeric_limits<float>::infinity();
      const Ids ids = random_ids(S, static_cast<int32_t>(V), 3);
      std::vector<RowSamplingParams> params = temperatures(S);
      const Scores out = score_on_gpu(OnGpu(logits), OnGpu(ids), n, params);
      Scores expected{poisoned({S}), poisoned({S}), poisoned({S, n}), Ids({S, n}, -7)};
      logits_logprob(cpu(), {.logp = expected.logp,
                             .raw_logp = expected.raw_logp,
                             .top_ids = expected.top_ids,
                             .top_logp = expected.top_logp,
                             .logits = logits,
                             .ids = ids,
                             .params = bytes_of(params)});
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat("V ", V, ", n ", n));
      for (int64_t r = 0; r < S; ++r) {
        const bool drawable = std::isfinite(expected.logp[r]);
        EXPECT_EQ(std::isfinite(out.logp[r]), drawable) << r;
        if (!drawable) continue;
        EXPECT_NEAR(out.logp[r], expected.logp[r], 5e-5) << r;
        EXPECT_NEAR(out.raw_logp[r], expected.raw_logp[r], 5e-5) << r;
      }
      for (int64_t i = 0; i < S * n; ++i) {
        ASSERT_EQ(out.top_ids[i], expected.top_ids[i]) << i;
        if (std::isfinite(expected.top_logp[i])) {
          EXPECT_NEAR(out.top_logp[i], expected.top_logp[i], 5e-5) << i;
        } else {
          EXPECT_EQ(out.top_logp[i], expected.top_logp[i]) << i;
        }
      }
    }
}

TEST(ScoreRowsOnGpu, HasTheBitsOfSampleRowsInAnyBatch) {
  HONE_GPU_OR_SKIP();
  const int64_t S = sized(33, 5), V = sized(20000, 5000);
  const OnGpu logits(normals({S, V}, 8, 2));
  const std::vector<RowSamplingParams> params = temperatures(S);
  OnGpu ids(Ids({S}, -7)), logp = OnGpu::poisoned({S}), truncated_logp = OnGpu::poisoned({S}),
                           raw_logp = OnGpu::poisoned({S});
  sample_rows(*gpu(), {.ids = ids,
                       .logp = logp,
                       .truncated_logp = truncated_logp,
                       .raw_logp = raw_logp,
                       .logits = logits,
                       .params = ParamsThere(params).tensor});
  const Floats drawn_logp = logp.read(), drawn_raw_logp = raw_logp.read();
  const Scores whole = score_on_gpu(logits, ids, 8, params);
  EXPECT_TRUE(close(whole.logp, drawn_logp, {0, 0}));
  EXPECT_TRUE(close(whole.raw_logp, drawn_raw_logp, {0, 0}));
  for (int64_t r = 0; r < S; ++r) {
    const Scores one =
        score_on_gpu(logits.tensor().rows(r, 1), ids.tensor().rows(r, 1), 8, {params[static_cast<size_t>(r)]});
    EXPECT_TRUE(same_bits(one.logp[0], whole.logp[r]) && same_bits(one.raw_logp[0], whole.raw_logp[r]));
    for (int64_t i = 0; i < 8; ++i) EXPECT_TRUE(same_bits(one.top_logp[i], whole.top_logp[8 * r + i]));
  }
}

TEST(ScoreRowsOnGpu, MarksRowsWithoutADistributionAndIdsOutside) {
  HONE_GPU_OR_SKIP();
  const int64_t V = 300;
  Floats logits = normals({4, V}, 1);
  logits[V + 299] = nan_f32, logits[2 * V] = std::numeric_limits<float>::infinity();
  Ids ids({4}, 5);
  ids[3] = static_cast<int32_t>(V);
  const Scores out = score_on_gpu(OnGpu(logits), OnGpu(ids), 2, std::vector<RowSamplingParams>(4));
  for (int64_t r = 0; r < 4; ++r) {
    const bool row = r == 0 || r == 3;
    EXPECT_EQ(std::isfinite(out.logp[r]) && std::isfinite(out.raw_logp[r]), r == 0) << r;
    EXPECT_EQ(std::isfinite(out.top_logp[2 * r]), row) << r;
    EXPECT_EQ(out.top_ids[2 * r] >= 0, row) << r;
  }
  EXPECT_EQ(score_on_gpu(OnGpu(Floats({0, 50})), OnGpu(Ids({0})), 2, {}).logp.size(), 0);
}

}  // namespace
}  // namespace hone::test
