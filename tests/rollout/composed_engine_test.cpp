// Engine with a composed decoder: layers with latent attention and layers with grouped-query attention and windows,
// with experts and without.
#include "model/token_logprobs.h"
#include "tests/model/tiny_model.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

class ComposedEngineTest : public TinyEngineTest {
 protected:
  ComposedEngineTest() {
    model =
        make_tiny(context,
                  with(tiny_config("hone_decoder"), {{"vocab_size", 61},
                                                     {"max_position_embeddings", 96},
                                                     {"num_hidden_layers", 4},
                                                     {"attention", JsonArray{"grouped", "latent", "grouped", "latent"}},
                                                     {"kv_lora_rank", 8},
                                                     {"mlp", JsonArray{"gated", "experts", "experts", "plain"}},
                                                     {"num_experts", 8},
                                                     {"num_experts_per_tok", 2},
                                                     {"layer_types", JsonArray{"sliding_attention", "sliding_attention",
                                                                               "full_attention", "full_attention"}}}),
                  false);
  }
  static std::vector<GenerationRequest> requests(uint64_t count) {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < count; ++i)
      out.push_back({prompt(i % 5, 1 + static_cast<int64_t>(i) * 5 % 37),
                     2,
                     i,
                     {.temperature = 0.8, .max_tokens = 15, .seed = 3, .stop = {}, .stop_ids = {7}}});
    return out;
  }
};

TEST_F(ComposedEngineTest, LogProbsAreTheLearnersBitForBitAtAnyBatchSize) {
  const std::vector<GenerationRequest> batch = requests(24);
  const std::vector<std::vector<CompletionOutput>> completions = Engine(context, *model, nullptr, {}).generate(batch);
  for (const int64_t size : {1, 3, 16})
    expect_same(completions,
                Engine(context, *model, nullptr, {.max_batch_tokens = 7, .max_sequences = size}).generate(batch));
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

// A cache that is too small for all sequences preempts some, and prompts with a common start share its blocks.
TEST_F(ComposedEngineTest, PreemptionAndCachedPrefixesChangeNoBit) {
  const std::vector<GenerationRequest> batch = requests(12);
  const auto expected = Engine(context, *model, nullptr, {}).generate(batch);
  Engine small(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 120, .max_sequences = 8});
  expect_same(expected, small.generate(batch));
  expect_same(expected, small.generate(batch));
  EXPECT_GT(small.stats().preemptions, 0);
  EXPECT_GT(small.stats().cached_tokens, 0);
}

}  // namespace
}  // namespace hone::test
