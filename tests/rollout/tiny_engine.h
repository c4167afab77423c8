#pragma once
// A small random model of 61 ids and 96 positions, prompts for it, and a comparison of completions.
#include <gtest/gtest.h>

#include "core/base/rng.h"
#include "model/forward.h"
#include "rollout/engine.h"
#include "tests/support/logits.h"

namespace hone::test {

class TinyEngineTest : public ::testing::Test {
 protected:
  TinyEngineTest() : device(devices().at("cpu")(0)), context(*device) {
    model = make_model(JsonObject{{"model_type", "llama"},
                                  {"hidden_size", 32},
                                  {"intermediate_size", 48},
                                  {"num_hidden_layers", 2},
                                  {"num_attention_heads", 4},
                                  {"num_key_value_heads", 2},
                                  {"vocab_size", 61},
                                  {"max_position_embeddings", 96},
                                  {"rms_norm_eps", 1e-5},
                                  {"initializer_range", 0.3},
                                  {"hidden_act", "silu"},
                                  {"tie_word_embeddings", false}},
                       "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
  }

  static std::vector<int32_t> prompt(uint64_t i, int64_t length) {
    std::vector<int32_t> out;
    Rng rng(11, i);
    for (int64_t t = 0; t < length; ++t) out.push_back(static_cast<int32_t>(rng.below(61)));
    return out;
  }
  // Logits of the token after these.
  std::vector<double> logits_after(const std::vector<int32_t>& tokens) {
    ScratchScope scope(context);
    const std::vector<BatchPart> parts{{tokens}};
    const std::vector<int32_t> last{static_cast<int32_t>(tokens.size()) - 1};
    const Tensor hidden = infer(context, *model, pack_batch(context, context.scratch(), parts),
                                upload(context, context.scratch(), last), nullptr);
    const Tensor logits = context.scratch().take(DType::f32, {1, model->shape().vocab_size});
    lm_head_logits(context, *model, logits, hidden);
    return {logits.as<float>().begin(), logits.as<float>().end()};
  }
  std::unique_ptr<Device> device;
  Context context;
  std::unique_ptr<Model> model;
};

inline void expect_same(const std::vector<TokenLogp>& a, const std::vector<TokenLogp>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].id == b[i].id && a[i].logp == b[i].logp) << i;
}

inline void expect_same(const std::vector<std::vector<CompletionOutput>>& a,
                        const std::vector<std::vector<CompletionOutput>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat("request ", i, " completion ", j));
      const CompletionOutput &x = a[i][j], &y = b[i][j];
      EXPECT_EQ(x.ids, y.ids);
      EXPECT_EQ(x.logp, y.logp);
      EXPECT_EQ(x.truncated_logp, y.truncated_logp);
      EXPECT_EQ(x.raw_logp, y.raw_logp);
      EXPECT_EQ(x.forced, y.forced);
      EXPECT_EQ(x.text, y.text);
      EXPECT_EQ(x.finish_reason, y.finish_reason);
      EXPECT_EQ(x.prompt_logp, y.prompt_logp);
      ASSERT_EQ(x.top_logprobs.size(), y.top_logprobs.size());
      for (size_t t = 0; t < x.top_logprobs.size(); ++t) expect_same(x.top_logprobs[t], y.top_logprobs[t]);
      ASSERT_EQ(x.prompt_top_logprobs.size(), y.prompt_top_logprobs.size());
      for (size_t t = 0; t < x.prompt_top_logprobs.size(); ++t)
        expect_same(x.prompt_top_logprobs[t], y.prompt_top_logprobs[t]);
    }
  }
}

}  // namespace hone::test
