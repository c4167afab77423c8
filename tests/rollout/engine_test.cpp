// Engine: completions do not depend on scheduling, and log-probs equal the learner's bit for bit.
#include "rollout/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/base/parallel_for.h"
#include "model/token_logprobs.h"
#include "rollout/decode_loop.h"
#include "rollout/kv/kv_cache.h"
#include "tests/rollout/byte_model.h"
#include "tests/rollout/tiny_engine.h"

namespace hone {
namespace {

class EngineTest : public test::TinyEngineTest {
 protected:
  static std::vector<GenerationRequest> requests() {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 9; ++i)
      out.push_back({prompt(i, 1 + static_cast<int64_t>(i) * 5),
                     1 + static_cast<int64_t>(i % 3),
                     i,
                     {.temperature = i == 4   ? 0.0
                                     : i == 5 ? 1.1
                                              : 0.8,
                      .max_tokens = 20,
                      .seed = 3,
                      .stop = {},
                      .stop_ids = {7}}});
    return out;
  }
  std::vector<std::vector<CompletionOutput>> run(const EngineConfig& config) {
    return Engine(context, *model, nullptr, config).generate(requests());
  }
};

using test::expect_same;

TEST_F(EngineTest, CompletionsDoNotDependOnBatchingChunkingOrPreemption) {
  const auto reference = run({});
  expect_same(reference, run({.max_batch_tokens = 1}));
  expect_same(reference, run({.max_batch_tokens = 7, .max_sequences = 2}));
  expect_same(reference, run({.kv_block_size = 3}));
  set_num_threads(1);
  expect_same(reference, run({}));
  set_num_threads(2);
}

TEST_F(EngineTest, AFullCachePreemptsAndLosesNothing) {
  const auto reference = run({});
  Engine engine(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 68});
  expect_same(reference, engine.generate(requests()));
  EXPECT_GT(engine.stats().preemptions, 0);
}

// Benchmarks use this to measure the host's own work.
TEST_F(EngineTest, OnTheMetaDeviceCompletionsHaveLengthsOnly) {
  const std::unique_ptr<Device> meta = devices().at("meta")(0);
  Context nowhere(*meta);
  const std::unique_ptr<Model> shape = model->same_shape();
  shape->allocate(nowhere, DType::f32, false);
  Engine engine(nowhere, *shape, nullptr, {});
  for (const std::vector<CompletionOutput>& completions : engine.generate(requests()))
    for (const CompletionOutput& completion : completions) EXPECT_EQ(completion.ids, std::vector<int32_t>(20, 0));
}

TEST_F(EngineTest, LogProbsAreTheLearnersBitForBit) {
  const std::vector<GenerationRequest> submitted = requests();
  const auto completions = run({});
  for (size_t i = 0; i < submitted.size(); ++i) {
    for (const CompletionOutput& completion : completions[i]) {
      std::vector<int32_t> ids = submitted[i].prompt;
      ids.insert(ids.end(), completion.ids.begin(), completion.ids.end());
      const double temperature = submitted[i].sampling.temperature > 0 ? submitted[i].sampling.temperature : 1;
      const TokenLogprobs scores =
          compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{ids}, {.temperature = temperature})
              .front();
      for (size_t t = 0; t < completion.ids.size(); ++t)
        ASSERT_EQ(completion.logp[t], scores.logp[submitted[i].prompt.size() + t]) << i << " token " << t;
    }
  }
}

TEST_F(EngineTest, ARestartedDecodeLoopDropsUnreadPasses) {
  KvCache cache(context, one_table(model->kv_groups()), DType::f32, 4, 16);
  DecodeLoop loop(context, *model, cache.storage());
  BlockTables blocks;
  cache.extend(blocks, 1);
  const auto begin = [&](DecodeLoop& of, int32_t token) {
    const DecodeLoop::Row row{.token = token,
                              .position = 0,
                              .blocks = &blocks,
                              .sampling = {.sample = {.temperature = 0}, .penalties = {}, .adjustments = {}}};
    of.start({&row, 1});
    EXPECT_EQ(of.num_unread(), 0);
    of.queue();
  };
  const auto alone = [&](int32_t token) {
    DecodeLoop other(context, *model, cache.storage());
    begin(other, token);
    return other.read().logp;
  };
  ASSERT_NE(alone(3), alone(4));
  begin(loop, 3);
  begin(loop, 4);  // the previous pass is unread
  EXPECT_EQ(loop.read().logp, alone(4));
  loop.queue();
  begin(loop, 3);
  EXPECT_EQ(loop.read().logp, alone(3));
}

TEST_F(EngineTest, QuantizedWeightsReplaceAModelThatTheEngineOwns) {
  const GenerationRequest request{prompt(1, 32), 2, 0, {.max_tokens = 20, .stop = {}, .stop_ids = {}}};
  const auto expected = Engine(context, *model, nullptr, {.quantization = "int8"}).generate({request});
  const size_t weights = model->flat_values().bytes();
  Engine engine(context, *model, nullptr, {.quantization = "int8", .owns_model = true});
  EXPECT_LT(model->flat_values().bytes(), weights);
  expect_same(engine.generate({request}), expected);
  EXPECT_THROW(engine.set_policy_version(1, false), Error);
}

// The width of the block table is a multiple of 64; the pass that fills it is not the last one.
TEST_F(EngineTest, ACompletionContinuesPastAFullBlockTable) {
  const GenerationRequest request{prompt(1, 32), 1, 0, {.max_tokens = 60, .stop = {}, .stop_ids = {}}};
  expect_same(Engine(context, *model, nullptr, {.kv_block_size = 1}).generate({request}),
              Engine(context, *model, nullptr, {.kv_block_size = 16}).generate({request}));
}

TEST_F(EngineTest, CompletionsThatEndOneByOneDoNotRestartTheDecodeLoopEachTime) {
  Engine engine(context, *model, nullptr, {});
  std::vector<CompletionOutput> completions;
  // All ids are about equally likely: about one token in twenty ends a completion.
  engine.submit({prompt(1, 9), 64, 0, {.temperature = 1e6, .max_tokens = 80, .stop = {}, .stop_ids = {7, 20, 33}}},
                [&](uint64_t, std::vector<CompletionOutput> done) { completions = std::move(done); });
  size_t steps = 0;
  while (engine.step()) ++steps;
  std::set<size_t> ends;
  for (const CompletionOutput& completion : completions) ends.insert(completion.ids.size());
  EXPECT_GT(ends.size(), 20u);
  EXPECT_LT(steps, ends.size());
}

TEST_F(EngineTest, AGroupSharesItsPrompt) {
  Engine engine(context, *model, nullptr, {});
  const auto completions = engine.generate({{prompt(1, 40), 8, 0, {.max_tokens = 5, .stop = {}, .stop_ids = {}}}});
  EXPECT_EQ(completions[0].size(), 8u);
  EXPECT_EQ(engine.stats().prompt_tokens, 40);
  EXPECT_EQ(engine.stats().shared_prompt_tokens, 7 * 40);
}

TEST_F(EngineTest, ARequestThatCannotFitFailsAndOthersContinue) {
  Engine engine(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 32});
  const auto completions = engine.generate({{{}, 1, 0, {}},
                                            {prompt(0, 96), 1, 1, {}},
                                            {prompt(0, 10), 1, 2, {.max_tokens = 80, .stop = {}, .stop_ids = {}}},
                                            {{3, 400}, 1, 3, {}},
                                            {prompt(0, 10), 1, 4, {.max_tokens = 4, .stop = {}, .stop_ids = {}}}});
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(completions[i][0].failed) << i;
  EXPECT_NE(completions[1][0].finish_reason.find("96"), std::string::npos);
  EXPECT_NE(completions[2][0].finish_reason.find("kv_cache_tokens"), std::string::npos);
  EXPECT_EQ(completions[4][0].ids.size(), 4u);
}

TEST_F(EngineTest, ACancelledRequestFreesItsBlocks) {
  Engine engine(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 64});
  bool called = false;
  const uint64_t ticket = engine.submit({prompt(0, 8), 1, 0, {.max_tokens = 50, .stop = {}, .stop_ids = {}}},
                                        [&](uint64_t, std::vector<CompletionOutput>) { called = true; });
  engine.step();
  engine.cancel(ticket);
  while (engine.step()) {}
  EXPECT_FALSE(called);
  EXPECT_FALSE(engine.generate({{prompt(1, 8), 1, 1, {.max_tokens = 50, .stop = {}, .stop_ids = {}}}})[0][0].failed);
}

TEST_F(EngineTest, TruncatedLogProbsSumToOneOverTheKeptTokens) {
  Engine engine(context, *model, nullptr, {});
  const auto completions = engine.generate(
      {{prompt(2, 6), 64, 0, {.temperature = 1, .top_k = 1, .max_tokens = 6, .stop = {}, .stop_ids = {}}}});
  for (const CompletionOutput& completion : completions[0]) {
    EXPECT_EQ(completion.ids, completions[0][0].ids);
    for (const float p : completion.truncated_logp) EXPECT_EQ(p, 0.0f);
    for (size_t t = 0; t < completion.ids.size(); ++t) EXPECT_EQ(completion.logp[t], completion.raw_logp[t]);
  }
}

// A model may have more ids than its tokenizer, as Qwen's models do.
TEST_F(EngineTest, AnIdBeyondTheTokenizerHasNoTextAndStopsNothing) {
  test::TinyModel tiny;
  Json config = tiny.model->config();
  config.set("vocab_size", 270);
  tiny.model = make_model(config, "test");
  tiny.model->allocate(tiny.context, DType::f32, false);
  tiny.model->initialize(tiny.context, 5);
  const SamplingParams sampling{.max_tokens = 6, .logit_bias = {{265, 100}}, .stop = {"never"}, .stop_ids = {}};
  const CompletionOutput completion = Engine(tiny.context, *tiny.model, &tiny.tokenizer, {})
                                          .generate({{test::byte_ids("ab"), 1, 0, sampling, 3}})
                                          .front()
                                          .front();
  EXPECT_EQ(completion.ids, std::vector<int32_t>(6, 265));
  EXPECT_EQ(completion.text, "");
  EXPECT_FALSE(completion.failed);
}

}  // namespace
}  // namespace hone
