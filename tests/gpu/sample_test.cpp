#include "kernels/sampling/sample.h"

#include <map>

#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/logprob.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Outputs {
  Ids ids;
  Floats logp, truncated_logp, raw_logp;
};

Outputs sample_on_gpu(const Tensor& logits, std::vector<RowSamplingParams> params) {
  const int64_t S = logits.dim(0), bytes = S * static_cast<int64_t>(sizeof(RowSamplingParams));
  const Buffer memory(gpu()->device(), static_cast<size_t>(bytes));
  const Tensor on_device(memory.data(), DType::u8, DeviceKind::cuda, {bytes});
  if (S > 0) gpu()->copy(on_device, Tensor(params.data(), DType::u8, DeviceKind::cpu, {bytes}));
  OnGpu ids(Ids({S}, -7)), logp = OnGpu::poisoned({S}), truncated_logp = OnGpu::poisoned({S}),
                           raw_logp = OnGpu::poisoned({S});
  sample_rows(*gpu(), {.ids = ids,
                       .logp = logp,
                       .truncated_logp = truncated_logp,
                       .raw_logp = raw_logp,
                       .logits = logits,
                       .params = on_device});
  return {ids.read_ids(), logp.read(), truncated_logp.read(), raw_logp.read()};
}

Outputs sample_on_cpu(const Tensor& logits, std::vector<RowSamplingParams> params) {
  const int64_t S = logits.dim(0);
  Outputs out{Ids({S}), Floats({S}), Floats({S}), Floats({S})};
  sample_rows(cpu(), {.ids = out.ids,
                      .logp = out.logp,
                      .truncated_logp = out.truncated_logp,
                      .raw_logp = out.raw_logp,
                      .logits = logits,
                      .params = Tensor(params.data(), DType::u8, DeviceKind::cpu,
                                       {S * static_cast<int64_t>(sizeof(RowSamplingParams))})});
  return out;
}

std::vector<RowSamplingParams> varied_params(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<RowSamplingParams> out;
  for (int64_t i = 0; i < count; ++i) {
    RowSamplingParams p{.seed = 5, .stream = static_cast<uint64_t>(i), .position = seed};
    p.temperature = std::array{0.0f, 1.0f, 0.7f, 2.0f}[rng.below(4)];
    p.top_p = std::array{1.0f, 1.0f, 0.9f, 0.999f, 0.1f}[rng.below(5)];
    p.min_p = std::array{0.0f, 0.0f, 0.05f}[rng.below(3)];
    p.top_k = std::array{0, 0, 1, 7, 300, 1 << 20}[rng.below(6)];
    out.push_back(p);
  }
  return out;
}

// Tokens by the definition in kernels/sampling/sample.h, with cumulated probability in ascending id.
struct Kept {
  std::map<int32_t, double> ends;
  explicit Kept(const float* logits, int64_t V, const RowSamplingParams& p) {
    const float inv_temperature = inverse_temperature(p.temperature);
    std::vector<std::pair<float, int32_t>> order;  // (-z, id)
    for (int32_t v = 0; v < V; ++v) order.emplace_back(-(logits[v] * inv_temperature), v);
    std::sort(order.begin(), order.end());
    const double max = -static_cast<double>(order.front().first);
    const auto weight = [&](size_t i) { return std::exp(-static_cast<double>(order[i].first) - max); };
    if (p.temperature == 0) order.resize(1);
    if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size()) order.resize(static_cast<size_t>(p.top_k));
    if (p.top_p < 1) {
      double all = 0, sum = 0;
      for (size_t i = 0; i < order.size(); ++i) all += weight(i);
      size_t count = 0;
      while (count < order.size() && (count == 0 || sum < static_cast<double>(p.top_p) * all)) sum += weight(count++);
      order.resize(count);
    }
    double mass = 0;
    for (size_t i = 0; i < order.size(); ++i)
      if (weight(i) >= static_cast<double>(p.min_p)) ends[order[i].second] = weight(i), mass += weight(i);
    double sum = 0;
    for (auto& [id, end] : ends) end = (sum += end) / mass;
  }
  // The distance of the uniform number from the token's interval of [0, 1).
  double distance(int32_t id, double uniform) const {
    const auto place = ends.find(id);
    if (place == ends.end()) return 1;
    const double begin = place == ends.begin() ? 0 : std::prev(place)->second;
    return std::max({0.0, begin - uniform, uniform - place->second});
  }
};

}  // namespace

TEST(SampleRowsOnGpu, DrawsWhatTheSpecificationDraws) {
  HONE_GPU_OR_SKIP();
  for (const int64_t V : {1, 2, 37, 1024, 5001, 40000})
    for (const float scale : {0.01f, 1.0f, 8.0f, 60.0f}) {
      const int64_t S = V > 10000 ? 12 : 40;
      Floats logits = normals({S, V}, static_cast<uint64_t>(V), scale, V % 2 == 0 ? 4 : 3);
      for (int64_t i = 0; i < logits.size(); i += 11) logits[i] = i % V == 0 ? 0.5f : -infinity;
      for (int64_t i = 0; V > 100 && i + 1 < logits.size(); i += 5) logits[i] = logits[i + 1];  // ties
      const std::vector<RowSamplingParams> params = varied_params(S, static_cast<uint64_t>(scale * 100));
      const Outputs out = sample_on_gpu(OnGpu(logits), params), expected = sample_on_cpu(logits, params);
      int differ = 0;
      for (int64_t r = 0; r < S; ++r) {
        const RowSamplingParams& p = params[static_cast<size_t>(r)];
        const ::testing::ScopedTrace trace(
            __FILE__, __LINE__,
            concat("V ", V, ", scale ", scale, ", row ", r, ", temperature ", p.temperature, ", top_p ", p.top_p,
                   ", min_p ", p.min_p, ", top_k ", p.top_k));
        if (out.ids[r] != expected.ids[r]) {
          ++differ;
          const double uniform = Rng(p.seed, p.stream, p.position).uniform();
          EXPECT_LE(Kept(logits.tensor().row<float>(r), V, p).distance(out.ids[r], uniform), 1e-5)
              << "drew " << out.ids[r] << ", expected " << expected.ids[r];
          continue;
        }
        const double tolerance = 2e-5 * std::max(1.0f, std::fabs(expected.logp[r]));
        EXPECT_NEAR(out.logp[r], expected.logp[r], tolerance);
        EXPECT_NEAR(out.truncated_logp[r], expected.truncated_logp[r], tolerance);
        EXPECT_NEAR(out.raw_logp[r], expected.raw_logp[r], 2e-5 * std::max(1.0f, std::fabs(expected.raw_logp[r])));
      }
      EXPECT_LE(differ, 2) << "V " << V << ", scale " << scale;
    }
}

TEST(SampleRowsOnGpu, FrequenciesAreTheProbabilities) {
  HONE_GPU_OR_SKIP();
  const int64_t draws = sized(20000, 5000), V = 12;
  const Floats logits = normals({1, V}, 4, 1.5f);
  Floats rows({draws, V});
  for (int64_t i = 0; i < rows.size(); ++i) rows[i] = logits[i % V];
  const OnGpu on_device(rows);
  for (const RowSamplingParams& p :
       {RowSamplingParams{}, RowSamplingParams{.temperature = 0.7f, .top_k = 5},
        RowSamplingParams{.temperature = 1.3f, .top_p = 0.8f}, RowSamplingParams{.min_p = 0.2f},
        RowSamplingParams{.temperature = 2, .top_p = 0.9f, .min_p = 0.1f, .top_k = 8}}) {
    if (!chosen()) continue;
    std::vector<RowSamplingParams> params(static_cast<size_t>(draws), p);
    for (int64_t i = 0; i < draws; ++i)
      params[static_cast<size_t>(i)].seed = 3, params[static_cast<size_t>(i)].position = static_cast<uint64_t>(i);
    const Outputs out = sample_on_gpu(on_device, params);
    const Kept kept(&logits[0], V, p);
    std::map<int32_t, int64_t> counts;
    for (int64_t i = 0; i < draws; ++i) ++counts[out.ids[i]];
    double chi_square = 0, before = 0;
    int64_t counted = 0;
    for (const auto& [id, end] : kept.ends) {
      const double mean = (end - before) * static_cast<double>(draws),
                   difference = static_cast<double>(counts[id]) - mean;
      chi_square += difference * difference / mean;
      counted += counts[id], before = end;
    }
    EXPECT_EQ(counted, draws) << "a token that was truncated away was drawn";
    // The statistic exceeds this bound once in ten thousand, for up to 11 degrees of freedom.
    EXPECT_LT(chi_square, 37.4) << "temperature " << p.temperature << ", top_k " << p.top_k << ", top_p " << p.top_p
                                << ", min_p " << p.min_p;
  }
}

TEST(SampleRowsOnGpu, LogpHasTheBitsOfLogprobForwardInAnyBatch) {
  HONE_GPU_OR_SKIP();
  const int64_t S = sized(150, 20), V = sized(9001, 1501), D = sized(640, 128);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const OnGpu hidden(normals({S, D}, 1, 3.0f / std::sqrt(static_cast<float>(D))), dtype),
        w(normals({V, D}, 2), dtype);
    for (const float temperature : {0.0f, 1.0f, 0.6f})
      for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{17}, sized<int64_t>(64, 19), S}) {
        if (!chosen()) continue;
        const Tensor some = hidden.tensor().rows(S - count, count);
        OnGpu logits = OnGpu::poisoned({count, V});
        gemm_forward(*gpu(), {.y = logits, .x = some, .w = w});
        std::vector<RowSamplingParams> params(static_cast<size_t>(count), {.temperature = temperature, .top_p = 0.9f});
        for (size_t r = 0; r < params.size(); ++r) params[r].position = r;
        const Outputs out = sample_on_gpu(logits, params);
        // The same rows within a larger batch.
        Ids targets({S});
        for (int64_t r = 0; r < count; ++r) targets[S - count + r] = out.ids[r];
        OnGpu logp = OnGpu::poisoned({S}), lse = OnGpu::poisoned({S}), raw_logp = OnGpu::poisoned({S});
        logprob_forward(*gpu(), {.logp = logp,
                                 .lse = lse,
                                 .hidden = hidden,
                                 .w = w,
                                 .targets = OnGpu(targets),
                                 .inv_temperature = inverse_temperature(temperature)});
        logprob_forward(
            *gpu(),
            {.logp = raw_logp, .lse = lse, .hidden = hidden, .w = w, .targets = OnGpu(targets), .inv_temperature = 1});
        const Floats learned = logp.read(), raw = raw_logp.read();
        for (int64_t r = 0; r < count; ++r) {
          ASSERT_TRUE(same_bits(out.logp[r], learned[S - count + r]))
              << "row " << r << " of " << count << ": " << out.logp[r];
          ASSERT_TRUE(same_bits(out.raw_logp[r], raw[S - count + r])) << "row " << r << " of " << count;
        }
      }
  }
}

TEST(SampleRowsOnGpu, DrawsDoNotDependOnTheBatch) {
  HONE_GPU_OR_SKIP();
  const int64_t S = sized(33, 5), V = sized(20000, 5000);
  const OnGpu logits(normals({S, V}, 8, 2));
  const std::vector<RowSamplingParams> params = varied_params(S, 3);
  const Outputs whole = sample_on_gpu(logits, params);
  for (int64_t r = 0; r < S; ++r) {
    const Outputs one = sample_on_gpu(logits.tensor().rows(r, 1), {params[static_cast<size_t>(r)]});
    EXPECT_EQ(one.ids[0], whole.ids[r]);
    EXPECT_TRUE(same_bits(one.logp[0], whole.logp[r]) && same_bits(one.truncated_logp[0], whole.truncated_logp[r]) &&
                same_bits(one.raw_logp[0], whole.raw_logp[r]));
  }
}

TEST(SampleRowsOnGpu, GreedyTakesTheLowestOfEquals) {
  HONE_GPU_OR_SKIP();
  Floats logits({3, 1000}, 1.0f);
  logits[1000 + 900] = 2, logits[1000 + 300] = 2, logits[1000 + 301] = 2;
  logits[2000] = 0.5f;
  const Outputs out = sample_on_gpu(OnGpu(logits), std::vector<RowSamplingParams>(3, {.temperature = 0}));
  EXPECT_EQ(out.ids[0], 0);
  EXPECT_EQ(out.ids[1], 300);
  EXPECT_EQ(out.ids[2], 1);
  EXPECT_EQ(out.truncated_logp[1], 0.0f);
  EXPECT_NEAR(static_cast<double>(out.logp[0]), std::log(0.001), 1e-5);
}

TEST(SampleRowsOnGpu, MarksRowsWithoutADistribution) {
  HONE_GPU_OR_SKIP();
  const int64_t V = 300;
  Floats logits = normals({5, V}, 1);
  logits[V + 299] = nan_f32, logits[2 * V] = infinity;
  for (int64_t v = 0; v < V; ++v) logits[3 * V + v] = -infinity;
  for (const RowSamplingParams& p :
       {RowSamplingParams{}, RowSamplingParams{.temperature = 0}, RowSamplingParams{.top_p = 0.5f},
        RowSamplingParams{.temperature = 0.5f, .top_k = 3}}) {
    const Outputs out = sample_on_gpu(OnGpu(logits), std::vector<RowSamplingParams>(5, p));
    for (int64_t r = 0; r < 5; ++r) {
      const bool bad = r > 0 && r < 4;
      EXPECT_EQ(out.ids[r] == -1, bad) << r;
      EXPECT_EQ(std::isnan(out.logp[r]) && std::isnan(out.truncated_logp[r]) && std::isnan(out.raw_logp[r]), bad) << r;
    }
  }
}

TEST(SampleRowsOnGpu, TakesNoRows) {
  HONE_GPU_OR_SKIP();
  EXPECT_EQ(sample_on_gpu(OnGpu(Floats({0, 50})), {}).ids.size(), 0);
}

}  // namespace hone::test
