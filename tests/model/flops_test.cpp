#include "model/flops.h"

#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

// GPT-2 small by hand: 124,439,808 parameters, of which 50257 x 768 + 1024 x 768 are looked up; layers with 12 D^2
// weights in matrices.
TEST(Plan, CountsGpt2) {
  const auto model = make_model(JsonObject{{"model_type", "gpt2"}}, "test");
  const ModelFlops plan = count_flops(*model, 1024);
  EXPECT_EQ(plan.params, 124439808);
  EXPECT_EQ(plan.trained_params, plan.params);
  EXPECT_EQ(plan.embedding_params, (50257 + 1024) * 768);
  const double matrices = 12 * 12 * 768.0 * 768 + 50257 * 768.0, attention = 12 * (4 * 1024 * 768.0 + 3 * 1024 * 12);
  EXPECT_DOUBLE_EQ(plan.forward_flops_per_token, 2 * matrices + attention);
  EXPECT_DOUBLE_EQ(plan.train_flops_per_token, 3 * plan.forward_flops_per_token);
}

// Gradients of frozen weights are not computed.
TEST(Plan, CountsWhatAdaptersTrain) {
  const auto model = make_model(JsonObject{{"model_type", "gpt2"}}, "test");
  model->add_lora({.r = 8});  // c_attn: 768 in, 2304 out
  const ModelFlops plan = count_flops(*model, 1024);
  const int64_t adapters = 12 * 8 * (768 + 2304);
  EXPECT_EQ(plan.trained_params, adapters);
  EXPECT_EQ(plan.params, 124439808 + adapters);
  const double frozen = 12 * 12 * 768.0 * 768 + 50257 * 768.0;
  EXPECT_DOUBLE_EQ(plan.train_flops_per_token, 3 * plan.forward_flops_per_token - 2 * frozen);
}

}  // namespace
}  // namespace hone::test
