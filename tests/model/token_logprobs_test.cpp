#include "model/token_logprobs.h"

#include <cmath>

#include "tests/model/tiny_model.h"
#include "tests/support/logits.h"

namespace hone::test {
namespace {

class ScoreTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  std::unique_ptr<Model> model_ = make_tiny(context_, tiny_config("llama"), false);
};

// Log-softmax and entropy computed directly in double.
TEST_F(ScoreTest, LogProbsAndEntropyOfTheTemperedLogits) {
  const std::vector<std::vector<int32_t>> sequences{random_tokens(9, 19, 1)};
  std::vector<float> hidden = hidden_of(context_, *model_, {{BatchPart{sequences[0]}}}), logits(9 * 19);
  lm_head_logits(context_, *model_, host_view(std::span(logits)).view({9, 19}),
                 host_view(std::span(hidden)).view({9, 12}));
  const TokenLogprobs scores = compute_logprobs(context_, *model_, sequences, {.temperature = 0.5, .entropy = true})[0];
  ASSERT_EQ(scores.logp.size(), 9u);
  EXPECT_EQ(scores.logp[0], 0);
  EXPECT_EQ(scores.entropy[0], 0);
  for (size_t t = 1; t < 9; ++t) {
    const std::span<const float> row = std::span(logits).subspan((t - 1) * 19, 19);
    double sum = 0, entropy = 0;
    for (const float z : row) sum += std::exp(2 * double{z});
    for (const float z : row) entropy -= std::exp(2 * double{z}) / sum * (2 * double{z} - std::log(sum));
    EXPECT_NEAR(scores.logp[t], 2 * double{row[static_cast<size_t>(sequences[0][t])]} - std::log(sum), 1e-5);
    EXPECT_NEAR(scores.entropy[t], entropy, 1e-5);
  }
}

TEST_F(ScoreTest, EmptyAndSingleTokensHaveNothingToTell) {
  const std::vector<std::vector<int32_t>> sequences{{}, {4}, {4, 5}, {}};
  const std::vector<TokenLogprobs> scores = compute_logprobs(context_, *model_, sequences, {});
  ASSERT_EQ(scores.size(), 4u);
  EXPECT_TRUE(scores[0].logp.empty());
  EXPECT_EQ(scores[1].logp, std::vector<float>{0});
  EXPECT_LT(scores[2].logp[1], 0);
  EXPECT_TRUE(scores[2].entropy.empty());
  EXPECT_TRUE(compute_logprobs(context_, *model_, {}, {}).empty());
}

TEST_F(ScoreTest, WhatCannotBeScored) {
  const auto refusal = [&](std::vector<int32_t> ids, double temperature) -> std::string {
    try {
      compute_logprobs(context_, *model_, std::vector<std::vector<int32_t>>{{1, 2}, std::move(ids)},
                       {.temperature = temperature});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({0, 19}, 1), "sequence 1: token 1 has id 19, the model's ids are 0 to 18");
  EXPECT_EQ(refusal(std::vector<int32_t>(42), 1),
            "sequence 1 has 42 tokens; the model has 40 positions, and one more token can be predicted");
  EXPECT_EQ(refusal({1}, 0), "temperature is 0; log-probabilities want a positive one");
}

}  // namespace
}  // namespace hone::test
