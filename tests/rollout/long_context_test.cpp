// Completions after prompts of about 32,000 tokens.
#include <gtest/gtest.h>

#include "model/token_logprobs.h"
#include "tests/rollout/tiny_engine.h"

namespace hone {
namespace {

class LongContextTest : public test::TinyEngineTest {
 protected:
  LongContextTest() {
    Json config = model->config();
    for (const auto& [key, value] : JsonObject{{"max_position_embeddings", 32768},
                                               {"num_hidden_layers", 1},
                                               {"hidden_size", 16},
                                               {"num_attention_heads", 2},
                                               {"num_key_value_heads", 1},
                                               {"head_dim", 8},
                                               {"initializer_range", 0.05}})
      config.set(key, value);
    model = make_model(config, "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
  }
};

TEST_F(LongContextTest, LogProbsAreTheLearnersBitForBit) {
  const GenerationRequest submitted{
      prompt(1, 32000), 2, 0, {.temperature = 0.9, .max_tokens = 24, .ignore_eos = true, .stop = {}, .stop_ids = {}}};
  Engine engine(context, *model, nullptr, {.kv_cache_tokens = 33000});
  const std::vector<CompletionOutput> completions = engine.generate({submitted}).front();
  std::vector<std::vector<int32_t>> texts;
  for (const CompletionOutput& completion : completions) {
    ASSERT_EQ(completion.ids.size(), 24u) << completion.finish_reason;
    texts.push_back(submitted.prompt);
    texts.back().insert(texts.back().end(), completion.ids.begin(), completion.ids.end());
  }
  const std::vector<TokenLogprobs> scores = compute_logprobs(context, *model, texts, {.temperature = 0.9});
  for (size_t i = 0; i < completions.size(); ++i)
    for (size_t t = 0; t < 24; ++t)
      ASSERT_EQ(completions[i].logp[t], scores[i].logp[submitted.prompt.size() + t]) << i << " " << t;
}

}  // namespace
}  // namespace hone
