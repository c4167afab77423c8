// Engine with attention sinks, alternating windows, and experts with biases: the learner's log-probs bit for bit.
#include "model/token_logprobs.h"
#include "rollout/engine.h"
#include "tests/model/tiny_model.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

class GptOssEngineTest : public TinyEngineTest {
 protected:
  GptOssEngineTest() {
    model = make_model(JsonObject{{"model_type", "gpt_oss"},
                                  {"hidden_size", 30},
                                  {"intermediate_size", 14},
                                  {"num_local_experts", 6},
                                  {"num_experts_per_tok", 2},
                                  {"num_hidden_layers", 3},
                                  {"num_attention_heads", 4},
                                  {"num_key_value_heads", 2},
                                  {"head_dim", 10},
                                  {"sliding_window", 5},
                                  {"swiglu_limit", 1.5},
                                  {"vocab_size", 61},
                                  {"max_position_embeddings", 96},
                                  {"initializer_range", 0.3},
                                  {"tie_word_embeddings", false}},
                       "test");
    make_weights(context, *model, false);  // biases and sinks other than 0
  }
  std::vector<GenerationRequest> requests() const {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 5; ++i)
      out.push_back({prompt(i, 1 + static_cast<int64_t>(i) * 7),
                     2,
                     i,
                     {.temperature = 0.8, .max_tokens = 40, .seed = 3, .stop = {}, .stop_ids = {7}}});
    return out;
  }
};

TEST_F(GptOssEngineTest, LogProbsAreTheLearnersBitForBit) {
  const std::vector<GenerationRequest> batch = requests();
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

TEST_F(GptOssEngineTest, AGreedyReplyIsTheSameInEveryBatch) {
  const GenerationRequest asked{prompt(1, 9), 1, 77, {.temperature = 0, .max_tokens = 30, .stop = {}, .stop_ids = {}}};
  const auto alone = Engine(context, *model, nullptr, {}).generate(std::vector{asked});
  for (const uint64_t size : {2u, 9u, 40u}) {
    std::vector<GenerationRequest> batch(size, asked);
    for (uint64_t i = 0; i + 1 < size; ++i)
      batch[i] = {prompt(100 + i, 1 + static_cast<int64_t>(i % 11)),
                  1,
                  i,
                  {.temperature = 0.9, .max_tokens = 30, .stop = {}, .stop_ids = {}}};
    const auto completions = Engine(context, *model, nullptr, {.max_sequences = 64}).generate(batch);
    EXPECT_EQ(completions.back()[0].ids, alone[0][0].ids) << size;
    EXPECT_EQ(completions.back()[0].logp, alone[0][0].logp) << size;
  }
}

}  // namespace
}  // namespace hone::test
