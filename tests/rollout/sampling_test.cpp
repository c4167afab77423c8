// Sampling: what adjusts logits, what ends a completion, and its log-probs; and that nothing depends on other requests.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/parallel_for.h"
#include "model/token_logprobs.h"
#include "tests/model/characters.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

constexpr int64_t V = 61;

class SamplingTest : public TinyEngineTest {
 protected:
  // Requests that use all options in turn.
  static std::vector<GenerationRequest> requests() {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 12; ++i) {
      GenerationRequest& request = out.emplace_back();
      request.prompt = prompt(i, 1 + static_cast<int64_t>(i) * 3);
      request.n = 1 + static_cast<int64_t>(i % 3);
      request.id = i;
      SamplingParams& sampling = request.sampling;
      sampling.temperature = i == 4 ? 0.0 : 1.1;
      sampling.max_tokens = 14;
      sampling.seed = 3;
      for (int64_t id = 0; id < 12; ++id) sampling.stop_ids.push_back(id);
      if (i % 2 == 0) sampling.min_tokens = static_cast<int64_t>(i);
      if (i % 3 == 0) sampling.repetition_penalty = 1.3;
      if (i % 4 == 1) sampling.presence_penalty = 0.7, sampling.frequency_penalty = -0.4;
      if (i % 3 == 1) sampling.logit_bias = {{20, 3}, {21, -100}};
      if (i % 4 == 2) sampling.top_p = 0.9;
      if (i % 5 == 0) request.top_logprobs = static_cast<int64_t>(i) + 1;
      request.prompt_logprobs = i % 4 == 3 || i == 10;
    }
    return out;
  }
  std::vector<std::vector<CompletionOutput>> run(std::vector<GenerationRequest> submitted,
                                                 const EngineConfig& config = {}) {
    return Engine(context, *model, nullptr, config).generate(std::move(submitted));
  }
  std::vector<CompletionOutput> replies_to(const GenerationRequest& request) { return run({request})[0]; }
  CompletionOutput one(const GenerationRequest& request) { return replies_to(request)[0]; }
};

std::vector<int32_t> joined(std::vector<int32_t> a, std::span<const int32_t> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The formulas of rollout/engine.h.
std::vector<double> changed_by(const GenerationRequest& request, std::span<const int32_t> before,
                               std::vector<double> logits) {
  const SamplingParams& sampling = request.sampling;
  for (const LogitBias& of : sampling.logit_bias) logits[static_cast<size_t>(of.id)] += of.bias;
  for (int32_t v = 0; v < V; ++v) {
    double& z = logits[static_cast<size_t>(v)];
    const auto times = std::ranges::count(before, v);
    if (times > 0 || std::ranges::count(request.prompt, v) > 0)
      z = z > 0 ? z / sampling.repetition_penalty : z * sampling.repetition_penalty;
    z -= sampling.frequency_penalty * static_cast<double>(times) + (times > 0 ? sampling.presence_penalty : 0);
    if (std::ssize(before) < sampling.min_tokens && std::ranges::count(sampling.stop_ids, v) > 0)
      z = -std::numeric_limits<double>::infinity();
  }
  return logits;
}

std::vector<double> log_softmax(std::vector<double> logits, double temperature) {
  double sum = 0;
  for (double& z : logits) z /= temperature, sum += std::exp(z);
  for (double& z : logits) z -= std::log(sum);
  return logits;
}

TEST_F(SamplingTest, NothingDependsOnBatchingChunkingPreemptionOrOtherRequests) {
  const auto reference = run(requests());
  expect_same(reference, run(requests(), {.max_batch_tokens = 1}));
  expect_same(reference, run(requests(), {.max_batch_tokens = 7, .max_sequences = 2}));
  expect_same(reference, run(requests(), {.kv_block_size = 3}));
  Engine small(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 48});
  expect_same(reference, small.generate(requests()));
  EXPECT_GT(small.stats().preemptions, 0);
  for (size_t i = 0; i < reference.size(); ++i) expect_same({reference[i]}, {run({requests()[i]})[0]});
}

TEST_F(SamplingTest, LogProbsFollowTheFormulasOfTheHeader) {
  for (const GenerationRequest& request : requests()) {
    const SamplingParams& sampling = request.sampling;
    if (sampling.top_p < 1 || sampling.temperature == 0) continue;
    for (const CompletionOutput& completion : replies_to(request))
      for (size_t t = 0; t < completion.ids.size(); ++t) {
        const std::span<const int32_t> before(completion.ids.data(), t);
        const std::vector<double> raw = logits_after(joined(request.prompt, before)),
                                  changed = changed_by(request, before, raw);
        const auto id = static_cast<size_t>(completion.ids[t]);
        EXPECT_NEAR(static_cast<double>(completion.truncated_logp[t]), log_softmax(changed, sampling.temperature)[id],
                    2e-5)
            << request.id << " token " << t;
        EXPECT_NEAR(static_cast<double>(completion.logp[t]), log_softmax(raw, sampling.temperature)[id], 2e-5)
            << request.id << " token " << t;
        EXPECT_NEAR(static_cast<double>(completion.raw_logp[t]), log_softmax(raw, 1)[id], 2e-5)
            << request.id << " token " << t;
      }
  }
}

TEST_F(SamplingTest, LogProbsAreTheLearnersBitForBitUnderAdjustments) {
  const auto completions = run(requests());
  for (size_t i = 0; i < completions.size(); ++i) {
    const GenerationRequest request = requests()[i];
    const double temperature = request.sampling.temperature > 0 ? request.sampling.temperature : 1;
    for (const CompletionOutput& completion : completions[i]) {
      const std::vector<std::vector<int32_t>> text{joined(request.prompt, completion.ids)};
      const TokenLogprobs scores = compute_logprobs(context, *model, text, {.temperature = temperature}).front();
      const TokenLogprobs raw = compute_logprobs(context, *model, text, {}).front();
      for (size_t t = 0; t < completion.ids.size(); ++t) {
        ASSERT_EQ(completion.logp[t], scores.logp[request.prompt.size() + t]) << i << " token " << t;
        ASSERT_EQ(completion.raw_logp[t], raw.logp[request.prompt.size() + t]) << i << " token " << t;
      }
      ASSERT_EQ(completion.prompt_logp.size(), request.prompt_logprobs ? request.prompt.size() : 0u);
      for (size_t t = 0; t < completion.prompt_logp.size(); ++t)
        ASSERT_EQ(completion.prompt_logp[t], raw.logp[t]) << i << " prompt token " << t;
    }
  }
}

// Beyond several starts of the decode loop, whose adjustment tables grow on the device.
TEST_F(SamplingTest, CapturedPassesCountTheSampledTokens) {
  GenerationRequest request{
      prompt(4, 8), 2, 0, {.temperature = 0, .max_tokens = 80, .min_tokens = 40, .stop = {}, .stop_ids = {}}, 3};
  request.sampling.repetition_penalty = 1.1, request.sampling.presence_penalty = 0.2,
  request.sampling.frequency_penalty = 0.3;
  request.sampling.logit_bias = {{20, 2}, {33, 1}};
  request.sampling.stop_ids = {1, 2, 3};
  Engine engine(context, *model, nullptr, {});
  std::vector<CompletionOutput> completions;
  engine.submit(request, [&](uint64_t, std::vector<CompletionOutput> done) { completions = std::move(done); });
  engine.step();
  const double prompts = engine.stats().prefill_seconds;
  while (engine.step()) {}
  EXPECT_EQ(engine.stats().prefill_seconds, prompts);
  for (const CompletionOutput& completion : completions) {
    ASSERT_GT(completion.ids.size(), 40u);
    for (size_t t = 0; t < completion.ids.size(); ++t) {
      const std::span<const int32_t> before(completion.ids.data(), t);
      const std::vector<double> raw = logits_after(joined(request.prompt, before)),
                                changed = changed_by(request, before, raw);
      const double best = *std::ranges::max_element(changed);
      ASSERT_NEAR(changed[static_cast<size_t>(completion.ids[t])], best, 1e-5) << "token " << t;
      ASSERT_EQ(completion.top_logprobs[t].size(), 3u);
      EXPECT_EQ(completion.top_logprobs[t][0].id, std::ranges::max_element(raw) - raw.begin());
    }
  }
}

TEST_F(SamplingTest, PenalizedFrequenciesAreTheProbabilities) {
  GenerationRequest request{
      prompt(3, 9), 4000, 0, {.repetition_penalty = 1.5, .presence_penalty = 1, .stop = {}, .stop_ids = {}}};
  request.sampling.max_tokens = 1;
  request.sampling.logit_bias = {{7, 2}};
  std::vector<double> times(V);
  for (const CompletionOutput& completion : replies_to(request)) ++times[static_cast<size_t>(completion.ids[0])];
  const std::vector<double> expected = log_softmax(changed_by(request, {}, logits_after(request.prompt)), 1);
  double chi_square = 0;
  int64_t freedom = -1;
  for (size_t id = 0; id < times.size(); ++id) {
    const double mean = 4000 * std::exp(expected[id]);
    if (mean < 5) continue;
    chi_square += (times[id] - mean) * (times[id] - mean) / mean, ++freedom;
  }
  ASSERT_GT(freedom, 5);
  EXPECT_LT(chi_square, static_cast<double>(freedom) + 4 * std::sqrt(2.0 * static_cast<double>(freedom)));
}

TEST_F(SamplingTest, NoCompletionStopsBeforeMinTokens) {
  bool early = false;
  for (const int64_t min_tokens : {0, 1, 9}) {
    GenerationRequest request{
        prompt(1, 6), 40, 0, {.max_tokens = 20, .min_tokens = min_tokens, .stop = {}, .stop_ids = {}}};
    for (int64_t id = 0; id < 30; ++id) request.sampling.stop_ids.push_back(id);
    for (const CompletionOutput& completion : replies_to(request)) {
      ASSERT_EQ(completion.finish_reason, "stop");
      ASSERT_GT(std::ssize(completion.ids), min_tokens);
      for (size_t t = 0; t + 1 < completion.ids.size(); ++t) EXPECT_GE(completion.ids[t], 30);
      early = early || completion.ids.size() == 1;
    }
  }
  EXPECT_TRUE(early);
}

TEST_F(SamplingTest, ABiasForcesAndBans) {
  GenerationRequest request{prompt(1, 6), 20, 0, {.max_tokens = 5, .stop = {}, .stop_ids = {}}};
  request.sampling.logit_bias = {{33, 100}};
  for (const CompletionOutput& completion : replies_to(request)) EXPECT_EQ(completion.ids, std::vector<int32_t>(5, 33));
  request.sampling.logit_bias = {{33, 100}, {34, 100}, {35, -100}};
  for (const CompletionOutput& completion : replies_to(request))
    for (const int32_t id : completion.ids) EXPECT_TRUE(id == 33 || id == 34);
}

TEST_F(SamplingTest, TopLogProbsAreTheMostLikelyIdsOfEachPosition) {
  GenerationRequest request{prompt(2, 8), 2,   0, {.temperature = 1.4, .max_tokens = 6, .stop = {}, .stop_ids = {}},
                            64,           true};
  for (const CompletionOutput& completion : replies_to(request)) {
    const std::vector<int32_t> text = joined(request.prompt, completion.ids);
    const auto check = [&](const std::vector<TokenLogp>& top, size_t position, float raw_logp) {
      ASSERT_EQ(std::ssize(top), V);  // all ids
      double mass = 0;
      for (size_t i = 0; i < top.size(); ++i) {
        mass += std::exp(static_cast<double>(top[i].logp));
        if (i > 0) {
          EXPECT_GE(top[i - 1].logp, top[i].logp);
        }
        if (top[i].id == text[position]) {
          EXPECT_EQ(top[i].logp, raw_logp);
        }
      }
      EXPECT_NEAR(mass, 1, 1e-5);
    };
    ASSERT_EQ(completion.top_logprobs.size(), completion.ids.size());
    for (size_t t = 0; t < completion.ids.size(); ++t)
      check(completion.top_logprobs[t], request.prompt.size() + t, completion.raw_logp[t]);
    ASSERT_EQ(completion.prompt_top_logprobs.size(), request.prompt.size());
    EXPECT_TRUE(completion.prompt_top_logprobs[0].empty());
    for (size_t t = 1; t < request.prompt.size(); ++t)
      check(completion.prompt_top_logprobs[t], t, completion.prompt_logp[t]);
  }
}

TEST_F(SamplingTest, TopLogProbsOfOneRequestDoNotShowInAnother) {
  std::vector<GenerationRequest> submitted(3, {prompt(2, 8), 1, 0, {.max_tokens = 4, .stop = {}, .stop_ids = {}}});
  submitted[0].top_logprobs = 5, submitted[1].top_logprobs = 2;
  const auto completions = run(submitted);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(completions[i][0].ids, completions[0][0].ids);
    EXPECT_EQ(completions[i][0].top_logprobs.size(), i == 2 ? 0u : 4u);
    for (const auto& top : completions[i][0].top_logprobs) EXPECT_EQ(std::ssize(top), submitted[i].top_logprobs);
  }
}

TEST_F(SamplingTest, PromptLogProbsReachTheLastPosition) {
  GenerationRequest request{prompt(5, 96), 2, 0, {.max_tokens = 0, .stop = {}, .stop_ids = {}}, 0, true};
  Engine engine(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 96, .max_batch_tokens = 10});
  const auto completions =
      engine.generate({request, {prompt(1, 4), 1, 1, {.max_tokens = 3, .stop = {}, .stop_ids = {}}}});
  const TokenLogprobs scores =
      compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{request.prompt}, {}).front();
  for (const CompletionOutput& completion : completions[0]) {
    EXPECT_FALSE(completion.failed) << completion.finish_reason;
    EXPECT_TRUE(completion.ids.empty());
    EXPECT_EQ(completion.finish_reason, "length");
    EXPECT_EQ(completion.prompt_logp, scores.logp);
  }
  EXPECT_EQ(completions[1][0].ids.size(), 3u);
  request.prompt_logprobs = false;  // max_tokens is 0 as well: an invalid request
  EXPECT_TRUE(one(request).failed);
}

TEST_F(SamplingTest, SeedRequestAndCompletionDecideTheSampledTokens) {
  GenerationRequest request{prompt(5, 5), 2, 7, {.max_tokens = 12, .seed = 1, .stop = {}, .stop_ids = {}}};
  const std::vector<CompletionOutput> first = replies_to(request);
  EXPECT_NE(first[0].ids, first[1].ids);
  expect_same({first}, run({request}));
  request.sampling.seed = 2;
  EXPECT_NE(one(request).ids, first[0].ids);
  request.sampling.seed = 1, request.id = 8;
  EXPECT_NE(one(request).ids, first[0].ids);
}

TEST_F(SamplingTest, OnTokenSeesEveryToken) {
  GenerationRequest request{prompt(5, 5), 2, 7, {.max_tokens = 6, .stop = {}, .stop_ids = {}}, 3, true};
  Engine engine(context, *model, nullptr, {});
  std::vector<CompletionOutput> seen(2), finished;
  engine.submit(
      request, [&](uint64_t, std::vector<CompletionOutput> completions) { finished = std::move(completions); },
      [&](uint64_t id, int64_t completion_index, const CompletionOutput& written) {
        EXPECT_EQ(id, 7u);
        EXPECT_EQ(written.ids.size(), seen[static_cast<size_t>(completion_index)].ids.size() + 1);
        EXPECT_EQ(written.prompt_logp.size(), 5u);
        seen[static_cast<size_t>(completion_index)] = written;
        seen[static_cast<size_t>(completion_index)].finish_reason = "length";
      });
  while (engine.step()) {}
  expect_same({seen}, {finished});
}

TEST_F(SamplingTest, ARequestOutOfRangeFailsWithTheReason) {
  const auto refused = [&](const char* word, auto change) {
    GenerationRequest request{prompt(1, 4), 1, 0, {.max_tokens = 4, .stop = {}, .stop_ids = {}}};
    change(request);
    const CompletionOutput completion = one(request);
    EXPECT_TRUE(completion.failed) << word;
    EXPECT_NE(completion.finish_reason.find(word), std::string::npos) << completion.finish_reason;
  };
  refused("temperature", [](GenerationRequest& r) { r.sampling.temperature = -1; });
  refused("top_p", [](GenerationRequest& r) { r.sampling.top_p = std::nan(""); });
  refused("min_tokens", [](GenerationRequest& r) { r.sampling.min_tokens = 5; });
  refused("min_tokens", [](GenerationRequest& r) {
    r.sampling.min_tokens = 1;
    for (int64_t id = 0; id < V; ++id) r.sampling.stop_ids.push_back(id);
  });
  refused("repetition_penalty", [](GenerationRequest& r) { r.sampling.repetition_penalty = 0; });
  refused("presence_penalty", [](GenerationRequest& r) { r.sampling.presence_penalty = 2.5; });
  refused("frequency_penalty", [](GenerationRequest& r) { r.sampling.frequency_penalty = std::nan(""); });
  refused("bias", [](GenerationRequest& r) { r.sampling.logit_bias = {{3, 101}}; });
  refused("61", [](GenerationRequest& r) { r.sampling.logit_bias = {{V, 1}}; });
  refused("twice", [](GenerationRequest& r) { r.sampling.logit_bias = {{3, 1}, {3, 2}}; });
  refused("top_logprobs", [](GenerationRequest& r) { r.top_logprobs = 65; });
  refused("top_logprobs", [](GenerationRequest& r) { r.top_logprobs = -1; });
  refused("max_tokens", [](GenerationRequest& r) { r.sampling.max_tokens = 0; });
}

TEST(StopStrings, CountOnlyAfterMinTokens) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = character_tokenizer(folder.path());
  const auto device = cpu_device();
  Context context(*device);
  const auto model = character_model(context, tokenizer);
  const auto reply_to = [&](const SamplingParams& sampling) {
    return Engine(context, *model, &tokenizer, {}).generate({{tokenizer.encode("ab 1"), 1, 5, sampling}})[0][0];
  };
  SamplingParams sampling{.max_tokens = 20, .seed = 9, .ignore_eos = true, .stop = {}, .stop_ids = {}};
  for (const int32_t id : tokenizer.encode("ab")) sampling.logit_bias.push_back({id, 100});
  const std::string text = reply_to(sampling).text;
  ASSERT_EQ(text.size(), 20u);
  const size_t first = text.find("ab"), second = text.find("ab", first + 1);
  ASSERT_NE(second, std::string::npos) << text;
  sampling.stop = {"ab"};
  const auto expect_cut = [&](size_t min_tokens, size_t cut) {
    sampling.min_tokens = static_cast<int64_t>(min_tokens);
    const CompletionOutput completion = reply_to(sampling);
    EXPECT_EQ(completion.finish_reason, "stop");
    EXPECT_EQ(completion.ids.size(), cut + 2) << min_tokens;
    EXPECT_EQ(completion.text, text.substr(0, cut)) << min_tokens;
  };
  expect_cut(0, first);
  expect_cut(first + 1, first);   // complete with the next token
  expect_cut(first + 2, second);  // complete before min_tokens: the text keeps it
}

}  // namespace
}  // namespace hone::test
