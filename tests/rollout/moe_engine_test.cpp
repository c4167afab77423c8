// Engine with a mixture of experts: completions do not depend on what else is in the batch.
#include "model/token_logprobs.h"
#include "rollout/engine.h"
#include "rollout/quantization_error.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

class MoeEngineTest : public TinyEngineTest {
 protected:
  MoeEngineTest() {
    model = make_model(JsonObject{{"model_type", "qwen3_moe"},
                                  {"hidden_size", 32},
                                  {"intermediate_size", 48},
                                  {"moe_intermediate_size", 16},
                                  {"num_experts", 8},
                                  {"num_experts_per_tok", 2},
                                  {"norm_topk_prob", true},
                                  {"num_hidden_layers", 2},
                                  {"num_attention_heads", 4},
                                  {"num_key_value_heads", 2},
                                  {"head_dim", 8},
                                  {"vocab_size", 61},
                                  {"max_position_embeddings", 96},
                                  {"initializer_range", 0.3},
                                  {"tie_word_embeddings", false}},
                       "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
  }
  // The reply to one request in batches of these sizes. Its bits must not depend on the size.
  void expect_one_reply(const EngineConfig& config, std::initializer_list<uint64_t> sizes);
};

void MoeEngineTest::expect_one_reply(const EngineConfig& config, std::initializer_list<uint64_t> sizes) {
  const GenerationRequest asked{prompt(1, 9), 1, 77, {.temperature = 0, .max_tokens = 12, .stop = {}, .stop_ids = {}}};
  std::vector<CompletionOutput> expected;
  for (const uint64_t size : sizes) {
    std::vector<GenerationRequest> batch;
    for (uint64_t i = 1; i < size; ++i)
      batch.push_back({prompt(100 + i, 1 + static_cast<int64_t>(i % 7)),
                       1,
                       i,
                       {.temperature = 0.9, .max_tokens = 12, .seed = 3, .stop = {}, .stop_ids = {}}});
    batch.insert(batch.begin() + static_cast<std::ptrdiff_t>(batch.size() / 2), asked);
    Engine engine(context, *model, nullptr, config);
    const auto completions = engine.generate(batch);
    const std::vector<CompletionOutput>& own = completions[(size - 1) / 2];
    if (size == 1) expected = own;
    ASSERT_EQ(own.size(), 1u);
    EXPECT_EQ(own[0].ids, expected[0].ids) << size;
    EXPECT_EQ(own[0].logp, expected[0].logp) << size;
  }
}

// At temperature 0 a prompt has one reply, whatever the batch is: what routing with a capacity would break.
TEST_F(MoeEngineTest, AGreedyReplyIsTheSameAtBatchSizesFrom1To256) {
  expect_one_reply({.max_sequences = 256}, {1, 2, 3, 8, 33, 256});
}

TEST_F(MoeEngineTest, AQuantizedReplyIsTheSameAtBatchSizesFrom1To64) {
  for (const char* format : {"int8", "fp8"}) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, format);
    expect_one_reply({.max_sequences = 64, .quantization = format}, {1, 2, 5, 8, 33, 64});
  }
}

// A new engine, and one that was told of new weights in between, reply with the same bits.
TEST_F(MoeEngineTest, AQuantizedEngineRepliesTheSameAfterARestart) {
  const std::vector<GenerationRequest> asked{
      {prompt(2, 9), 3, 5, {.temperature = 0.9, .max_tokens = 20, .seed = 4, .stop = {}, .stop_ids = {}}}};
  const EngineConfig config{.quantization = "int8"};
  const auto expected = Engine(context, *model, nullptr, config).generate(asked);
  Engine again(context, *model, nullptr, config);
  expect_same(again.generate(asked), expected);
  model->initialize(context, 6);
  again.set_policy_version(again.version() + 1);
  EXPECT_NE(again.generate(asked)[0][0].logp, expected[0][0].logp);
  model->initialize(context, 5);
  again.set_policy_version(again.version() + 1);
  expect_same(again.generate(asked), expected);
  EXPECT_NE(Engine(context, *model, nullptr, {}).generate(asked)[0][0].logp, expected[0][0].logp);
}

TEST_F(MoeEngineTest, TheErrorOfQuantizedExpertsIsMeasured) {
  const std::vector<std::vector<int32_t>> texts{prompt(1, 40), prompt(2, 30)};
  for (const char* format : {"int8", "fp8"}) {
    const QuantizationError error = quantization_error(context, *model, {.quantization = format}, texts);
    EXPECT_EQ(error.tokens, 39 + 29);
    EXPECT_GT(error.max_difference, 0);
    EXPECT_GT(error.kl, 0);
    EXPECT_LT(error.kl, 0.1) << format;
    EXPECT_GT(error.same_top, 0.8) << format;
  }
}

TEST_F(MoeEngineTest, SpeculativeDecodingChangesNoReply) {
  std::vector<GenerationRequest> asked;
  for (uint64_t i = 0; i < 5; ++i) {
    std::vector<int32_t> tokens = prompt(i, 6);
    tokens.insert(tokens.end(), tokens.begin(), tokens.end());  // something to look up
    asked.push_back({tokens, 1, i, {.temperature = 0, .max_tokens = 24, .stop = {}, .stop_ids = {}}});
  }
  const auto expected = Engine(context, *model, nullptr, {}).generate(asked);
  EngineConfig config;
  config.speculative = {.method = "ngram", .prompt_lookup_min = 2, .prompt_lookup_max = 3};
  Engine engine(context, *model, nullptr, config);
  expect_same(engine.generate(asked), expected);
  EXPECT_GT(engine.stats().drafts, 0);
}

TEST_F(MoeEngineTest, LogProbsAreTheLearnersBitForBit) {
  std::vector<GenerationRequest> batch;
  for (uint64_t i = 0; i < 6; ++i)
    batch.push_back({prompt(i, 1 + static_cast<int64_t>(i) * 5),
                     2,
                     i,
                     {.temperature = 0.8, .max_tokens = 15, .seed = 3, .stop = {}, .stop_ids = {7}}});
  const auto completions = Engine(context, *model, nullptr, {}).generate(batch);
  expect_same(completions,
              Engine(context, *model, nullptr, {.max_batch_tokens = 7, .max_sequences = 2}).generate(batch));
  for (size_t i = 0; i < batch.size(); ++i)
    for (const CompletionOutput& completion : completions[i]) {
      std::vector<int32_t> ids = batch[i].prompt;
      ids.insert(ids.end(), completion.ids.begin(), completion.ids.end());
      const TokenLogprobs scores =
          compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{ids}, {.temperature = 0.8}).front();
      for (size_t t = 0; t < completion.ids.size(); ++t)
        ASSERT_EQ(completion.logp[t], scores.logp[batch[i].prompt.size() + t]) << i << " token " << t;
    }
}

}  // namespace
}  // namespace hone::test
