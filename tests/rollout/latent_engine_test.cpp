// Engine with multi-head latent attention: one form of attention for prompts, decoding and training.
#include "model/token_logprobs.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

class LatentEngineTest : public TinyEngineTest {
 protected:
  LatentEngineTest() {
    model = make_model(config(), "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
  }
  static Json config() {
    return JsonObject{{"model_type", "deepseek_v3"},
                      {"hidden_size", 32},
                      {"intermediate_size", 48},
                      {"moe_intermediate_size", 16},
                      {"n_routed_experts", 8},
                      {"num_experts_per_tok", 2},
                      {"n_group", 4},
                      {"topk_group", 2},
                      {"first_k_dense_replace", 1},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 3},
                      {"kv_lora_rank", 24},
                      {"q_lora_rank", 20},
                      {"qk_rope_head_dim", 8},
                      {"qk_nope_head_dim", 12},
                      {"v_head_dim", 10},
                      {"vocab_size", 61},
                      {"max_position_embeddings", 96},
                      {"initializer_range", 0.3},
                      {"tie_word_embeddings", false}};
  }
  static std::vector<GenerationRequest> requests(uint64_t count) {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < count; ++i)
      out.push_back({prompt(i, 1 + static_cast<int64_t>(i) * 5 % 37),
                     2,
                     i,
                     {.temperature = 0.8, .max_tokens = 15, .seed = 3, .stop = {}, .stop_ids = {7}}});
    return out;
  }
};

TEST_F(LatentEngineTest, TheCacheKeepsOneLatentRowPerToken) {
  ASSERT_EQ(model->kv_groups().size(), 1u);
  EXPECT_EQ(model->kv_groups()[0],
            (KvGroupShape{.num_kv_heads = 1, .key_dim = 32, .value_dim = 0, .window = 0, .planes = 2}));
}

TEST_F(LatentEngineTest, LogProbsAreTheLearnersBitForBitAtAnyBatchSize) {
  const std::vector<GenerationRequest> batch = requests(64);
  std::vector<std::vector<CompletionOutput>> completions = Engine(context, *model, nullptr, {}).generate(batch);
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

// A cache that is too small for all sequences preempts some; prompts with a common start share its blocks.
TEST_F(LatentEngineTest, PreemptionAndSharedPrefixesChangeNoBit) {
  std::vector<GenerationRequest> batch = requests(12);
  const std::vector<int32_t> start = prompt(99, 40);
  for (size_t i = 0; i < batch.size(); i += 2)
    batch[i].prompt.insert(batch[i].prompt.begin(), start.begin(), start.end());
  const auto expected = Engine(context, *model, nullptr, {}).generate(batch);
  Engine small(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 160, .max_sequences = 8});
  expect_same(expected, small.generate(batch));
  expect_same(expected, small.generate(batch));  // from cached prefixes
}

TEST_F(LatentEngineTest, AnFp8CacheIsRefused) {
  try {
    Engine(context, *model, nullptr, {.kv_cache_dtype = "fp8"});
    FAIL() << "an fp8 cache holds no latents";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("kv_cache_dtype"), std::string::npos) << error.what();
  }
}

// Quantized matrices leave kv_b_proj as it is: both maps of the absorbed form read it.
TEST_F(LatentEngineTest, QuantizedWeightsDecodeAsTheyPrefill) {
  const std::vector<GenerationRequest> batch = requests(5);
  const auto expected = Engine(context, *model, nullptr, {.quantization = "int8"}).generate(batch);
  expect_same(expected,
              Engine(context, *model, nullptr, {.max_batch_tokens = 3, .max_sequences = 1, .quantization = "int8"})
                  .generate(batch));
}

}  // namespace
}  // namespace hone::test
