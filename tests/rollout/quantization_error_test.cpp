// quantization_error(): zero for the model's own arithmetic, and equal to the engine's own differences.
#include "rollout/quantization_error.h"

#include <cmath>

#include "model/token_logprobs.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

class QuantizationErrorTest : public TinyEngineTest {
 protected:
  std::vector<std::vector<int32_t>> texts() const { return {prompt(1, 90), prompt(2, 7), prompt(3, 1)}; }
};

TEST_F(QuantizationErrorTest, IsZeroWithTheModelsOwnArithmetic) {
  const QuantizationError error = quantization_error(context, *model, {}, texts());
  EXPECT_EQ(error.tokens, 89 + 6);
  EXPECT_EQ(error.max_difference, 0);
  EXPECT_EQ(error.kl, 0);
  EXPECT_EQ(error.same_top, 1);
  EXPECT_EQ(error.perplexity, error.engine_perplexity);
  double nll = 0;
  for (const TokenLogprobs& scores : compute_logprobs(context, *model, texts(), {}))
    for (const float logp : scores.logp) nll -= logp;
  EXPECT_NEAR(error.perplexity, std::exp(nll / 95), 1e-3);
}

// Compares with prompt log-probs of the engine.
TEST_F(QuantizationErrorTest, IsThatOfTheEnginesLogProbs) {
  for (const EngineConfig& config : {EngineConfig{.quantization = "int8"},
                                     {.quantization = "fp8"},
                                     {.kv_cache_dtype = "fp8"},
                                     {.quantization = "int8", .kv_cache_dtype = "fp8"}}) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, config.quantization + ", cache " + config.kv_cache_dtype);
    const QuantizationError error = quantization_error(context, *model, config, texts());
    double nll = 0, most = 0;
    const auto scores = compute_logprobs(context, *model, texts(), {});
    for (size_t i = 0; i < texts().size(); ++i) {
      GenerationRequest request{texts()[i], 1, 0, {.max_tokens = 0, .stop = {}, .stop_ids = {}}};
      request.prompt_logprobs = true;
      const CompletionOutput completion = Engine(context, *model, nullptr, config).generate({request})[0][0];
      ASSERT_FALSE(completion.failed) << completion.finish_reason;
      for (size_t t = 1; t < completion.prompt_logp.size(); ++t) {
        nll -= completion.prompt_logp[t];
        most = std::max(most, std::fabs(static_cast<double>(completion.prompt_logp[t]) - scores[i].logp[t]));
      }
    }
    EXPECT_NEAR(error.engine_perplexity, std::exp(nll / 95), 1e-3);
    EXPECT_NEAR(error.max_difference, most, 1e-4);
    EXPECT_GT(error.mean_difference, 0);
    EXPECT_LT(error.mean_difference, error.max_difference);
    EXPECT_GT(error.kl, 0);
    EXPECT_LT(error.kl, 0.2);
    EXPECT_GT(error.same_top, 0.7);
  }
}

TEST_F(QuantizationErrorTest, SequencesWithoutASecondTokenAreErrors) {
  EXPECT_THROW(quantization_error(context, *model, {}, std::vector<std::vector<int32_t>>{{3}}), Error);
  EXPECT_THROW(quantization_error(context, *model, {}, std::vector<std::vector<int32_t>>{{}, {1, 2}}), Error);
  EXPECT_THROW(quantization_error(context, *model, {}, std::vector<std::vector<int32_t>>{prompt(1, 97)}), Error);
}

}  // namespace
}  // namespace hone::test
