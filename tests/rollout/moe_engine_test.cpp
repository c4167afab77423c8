// Engine with a mixture of experts: completions do not depend on what else is in the batch.
#include "model/token_logprobs.h"
#include "rollout/engine.h"
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
};

// At temperature 0 a prompt has one reply, whatever the batch is: what routing with a capacity would break.
TEST_F(MoeEngineTest, AGreedyReplyIsTheSameAtBatchSizesFrom1To256) {
  const GenerationRequest asked{prompt(1, 9), 1, 77, {.temperature = 0, .max_tokens = 12, .stop = {}, .stop_ids = {}}};
  std::vector<CompletionOutput> expected;
  for (const uint64_t size : {1u, 2u, 3u, 8u, 33u, 256u}) {
    std::vector<GenerationRequest> batch;
    for (uint64_t i = 1; i < size; ++i)
      batch.push_back({prompt(100 + i, 1 + static_cast<int64_t>(i % 7)),
                       1,
                       i,
                       {.temperature = 0.9, .max_tokens = 12, .seed = 3, .stop = {}, .stop_ids = {}}});
    batch.insert(batch.begin() + static_cast<std::ptrdiff_t>(batch.size() / 2), asked);
    Engine engine(context, *model, nullptr, {.max_sequences = 256});
    const auto completions = engine.generate(batch);
    const std::vector<CompletionOutput>& own = completions[(size - 1) / 2];
    if (size == 1) expected = own;
    ASSERT_EQ(own.size(), 1u);
    EXPECT_EQ(own[0].ids, expected[0].ids) << size;
    EXPECT_EQ(own[0].logp, expected[0].logp) << size;
  }
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
