// hone_decoder: its compositions equal the families that have the same ones, and what is refused.
#include "model/io/export_gguf.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

class Decoder : public testing::Test {
 protected:
  std::vector<float> hidden(Model& model) {
    const std::vector<int32_t> ids = random_tokens(20, 19, 1);
    return hidden_of(context_, model, {{BatchPart{ids}}});
  }
  std::vector<float> hidden(const Json& config) { return hidden(*make_tiny(context_, config, false)); }
  std::vector<float> composed(const JsonObject& changes) { return hidden(with(tiny_config("hone_decoder"), changes)); }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

std::string refusal(const JsonObject& changes) {
  return error_of([&] { make_model(with(tiny_config("hone_decoder"), changes), "test.json"); });
}

TEST_F(Decoder, CompositionsEqualTheFamiliesThatHaveThem) {
  const Json none;
  EXPECT_EQ(composed({{"sliding_window", none}}), hidden(tiny_config("llama")));
  EXPECT_EQ(composed(JsonObject{}), hidden(tiny_config("mistral")));
  EXPECT_EQ(composed({{"sliding_window", none}, {"qk_norm", true}}), hidden(tiny_config("qwen3")));
  EXPECT_EQ(composed({{"sliding_window", none}, {"no_rope_layers", JsonArray{1, 0}}, {"attention_bias", true}}),
            hidden(with(tiny_config("smollm3"), {{"no_rope_layers", JsonArray{1, 0}}, {"attention_bias", true}})));
  for (const char* name : {"silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "relu2"})
    EXPECT_EQ(composed({{"sliding_window", none}, {"hidden_act", name}}),
              hidden(with(tiny_config("llama"), {{"hidden_act", name}})))
        << name;
}

// One name stands for all layers, and each key changes the model.
TEST_F(Decoder, ANameStandsForAllLayersAndEachKeyMatters) {
  const std::vector<float> plain = composed(JsonObject{});
  for (const auto& [key, name] : std::vector<std::pair<std::string, std::string>>{{"norm_placement", "post"},
                                                                                  {"norm_placement", "both"},
                                                                                  {"norm_placement", "parallel"},
                                                                                  {"hidden_act", "relu"},
                                                                                  {"mlp", "plain"}}) {
    const std::vector<float> all = composed({{key, name}});
    EXPECT_EQ(all, composed({{key, JsonArray{name, name}}})) << key;
    EXPECT_NE(all, plain) << key << " " << name;
  }
  for (const auto& change : std::vector<std::pair<std::string, Json>>{{"norm_type", "layer_norm"},
                                                                      {"attention_bias", true},
                                                                      {"mlp_bias", true},
                                                                      {"qk_norm", true},
                                                                      {"rope_interleaved", true},
                                                                      {"no_rope_layer_interval", 2},
                                                                      {"attn_logit_softcapping", 0.5},
                                                                      {"embedding_scale", 2.0}})
    EXPECT_NE(composed(JsonObject{change}), plain) << change.first;
  EXPECT_NE(composed({{"head_dim", 8}, {"partial_rotary_factor", 0.5}}), composed({{"head_dim", 8}}));
  EXPECT_EQ(
      make_model(with(tiny_config("hone_decoder"), {{"final_logit_softcapping", 3.0}}), "test")->shape().logit_softcap,
      3);
}

// Dims (2i, 2i + 1) of an interleaved head are dims (i, i + half) of the other layout: with the rows of q and k in that
// order the models are equal.
TEST_F(Decoder, InterleavedRopeIsTheOtherLayoutWithRowsInAnotherOrder) {
  const JsonObject partial{{"head_dim", 8}, {"partial_rotary_factor", 0.5}, {"sliding_window", Json()}};
  const Json config = with(tiny_config("hone_decoder"), partial);
  const auto interleaved = make_tiny(context_, with(config, {{"rope_interleaved", true}}), false),
             halves = make_tiny(context_, config, false);
  constexpr int64_t dim = 8, half = 2, q_and_k_heads = 6;
  for (int64_t layer = 0; layer < 2; ++layer) {
    const Tensor from = interleaved->layer_modules(layer).linears[0]->weight.value,
                 to = halves->layer_modules(layer).linears[0]->weight.value;
    for (int64_t head = 0; head < q_and_k_heads; ++head)
      for (int64_t i = 0; i < half; ++i)
        for (const int64_t side : {0, 1})
          std::copy_n(from.row<float>(head * dim + 2 * i + side), from.row_size(),
                      to.row<float>(head * dim + i + side * half));
  }
  const std::vector<float> a = hidden(*interleaved), b = hidden(*halves);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5);
}

TEST_F(Decoder, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_PRED2(says, refusal({{"norm_placement", "middle"}}),
               "norm_placement 'middle' is not supported; supported: pre, post, both, parallel");
  EXPECT_PRED2(says, refusal({{"norm_placement", JsonArray{"pre"}}}),
               "norm_placement has 1 names, wants one name, or a list of 2: one for each layer");
  EXPECT_PRED2(says, refusal({{"norm_placement", 3}}), "test.json: norm_placement");
  EXPECT_PRED2(says, refusal({{"mlp", JsonArray{"gated", 1}}}), "test.json: mlp");
  EXPECT_PRED2(says, refusal({{"mlp", "moe"}}), "mlp 'moe' is not supported; supported: gated, plain");
  EXPECT_PRED2(says, refusal({{"hidden_act", JsonArray{"silu", "tanh"}}}), "hidden_act 'tanh' is not supported");
  EXPECT_PRED2(says, refusal({{"norm_type", "batch_norm"}}), "supported: rms_norm, layer_norm");
  EXPECT_PRED2(says, refusal({{"norm_placment", "post"}}),
               "unknown key 'norm_placment'; did you mean 'norm_placement'?");
  EXPECT_PRED2(says, refusal({{"rope_interleave", true}}), "did you mean 'rope_interleaved'?");
  EXPECT_PRED2(says, refusal({{"no_rope_layer", JsonArray{1, 0}}}), "did you mean 'no_rope_layers'?");
  EXPECT_PRED2(says, refusal({{"partial_rotary_factor", 1.5}}), "partial_rotary_factor is 1.5");
  EXPECT_PRED2(says, refusal({{"partial_rotary_factor", 0.5}}), "RoPE would rotate 3 dimensions");
  EXPECT_PRED2(says, refusal({{"no_rope_layers", JsonArray{1}}}), "no_rope_layers wants a list of at least 2");
  EXPECT_PRED2(says, refusal({{"no_rope_layer_interval", 0}}), "no_rope_layer_interval is 0");
  EXPECT_PRED2(says, refusal({{"layer_types", JsonArray{"full_attention"}}}), "layer_types wants a list of 2");
  EXPECT_PRED2(says,
               refusal({{"layer_types", JsonArray{"sliding_attention", "full_attention"}}, {"sliding_window", Json()}}),
               "no sliding_window");
  EXPECT_PRED2(says, refusal({{"num_key_value_heads", 3}}), "not a multiple of num_key_value_heads 3");
  EXPECT_PRED2(says, refusal({{"attn_logit_softcapping", -2.0}}), "attn_logit_softcapping is -2");
  EXPECT_PRED2(says, refusal({{"embedding_scale", 0.0}}), "embedding_scale is 0, wants a positive number");
  EXPECT_PRED2(says, refusal({{"qk_norm", "yes"}}), "test.json: qk_norm");
}

// Without RoPE in any layer a head may have an odd number of dimensions.
TEST_F(Decoder, NoLayerNeedsRope) {
  const Json config = with(tiny_config("hone_decoder"), {{"no_rope_layers", JsonArray{0, 0}}, {"head_dim", 5}});
  const auto model = make_tiny(context_, config, false);
  EXPECT_EQ(model->shape().head_dim, 5);
  EXPECT_EQ(hidden(*model).size(), 240u);
}

TEST_F(Decoder, HasNoGguf) {
  const auto model = make_tiny(context_, tiny_config("hone_decoder"), false);
  const TemporaryFolder folder;
  save_model(context_, *model, folder.path(), DType::f32);
  EXPECT_PRED2(says, error_of([&] { export_gguf(folder.path(), folder.path() / "out.gguf", gguf_type_named("BF16")); }),
               "a model of the family 'hone_decoder' cannot be written as GGUF; supported:");
}

}  // namespace
}  // namespace hone::test
