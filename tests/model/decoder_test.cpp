// hone_decoder: its compositions equal the families that have the same ones, and what is refused.
#include "model/flops.h"
#include "model/io/export_gguf.h"
#include "tests/model/chain_loss.h"
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
  EXPECT_PRED2(says, refusal({{"mlp", "moe"}}), "mlp 'moe' is not supported; supported: gated, plain, experts");
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

// What a family computes from its own keys, and hone_decoder from its keys: names of tensors, hidden states, gradients,
// KV groups and counts.
struct EqualModels {
  std::string family;
  JsonObject of_family, of_decoder;
};

class DecoderEquality : public Decoder, public testing::WithParamInterface<EqualModels> {
 protected:
  std::vector<float> gradients(Model& model) {
    const std::vector<int32_t> ids = random_tokens(11, 19, 1), more = random_tokens(6, 19, 2);
    const std::vector<BatchPart> parts{{ids}, {more}};
    ChainLoss(context_, model, parts).gradient(Recompute::selective);
    return download(context_, model.flat_grads());
  }
  static std::vector<std::string> names(Model& model) {
    std::vector<std::string> out;
    for (const Param* param : model.params())
      for (const Param::Slice& slice : param->slices) out.push_back(slice.name);
    return out;
  }
};

TEST_P(DecoderEquality, OfEqualWeights) {
  const auto family = make_tiny(context_, with(tiny_config(GetParam().family), GetParam().of_family)),
             decoder = make_tiny(context_, with(tiny_config("hone_decoder"), GetParam().of_decoder));
  ASSERT_EQ(names(*decoder), names(*family));
  ASSERT_EQ(download(context_, decoder->flat_values()), download(context_, family->flat_values()));
  EXPECT_EQ(hidden(*decoder), hidden(*family));
  EXPECT_EQ(gradients(*decoder), gradients(*family));
  EXPECT_EQ(decoder->kv_groups(), family->kv_groups());
  EXPECT_EQ(decoder->num_aux_sums(), family->num_aux_sums());
  const ModelFlops a = count_flops(*decoder, 30), b = count_flops(*family, 30);
  EXPECT_EQ(a.params, b.params);
  EXPECT_EQ(a.active_params, b.active_params);
  EXPECT_EQ(a.train_flops_per_token, b.train_flops_per_token);
  EXPECT_EQ(a.causal_train_flops_per_token, b.causal_train_flops_per_token);
}

const JsonObject latent_keys{{"sliding_window", Json()},
                             {"attention", "latent"},
                             {"kv_lora_rank", 8},
                             {"rope_interleaved", true},
                             {"shared_expert_intermediate_size", 0}};

JsonObject joined(JsonObject a, const JsonObject& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

INSTANTIATE_TEST_SUITE_P(
    Families, DecoderEquality,
    testing::Values(
        EqualModels{"deepseek_v3",
                    {{"num_experts_per_tok", 2}, {"router_bias_update_rate", 0.01}, {"n_shared_experts", 2}},
                    joined(latent_keys, {{"mlp", JsonArray{"gated", "experts"}},
                                         {"num_experts", 4},
                                         {"num_experts_per_tok", 2},
                                         {"n_shared_experts", 2},
                                         {"scoring_func", "sigmoid"},
                                         {"norm_topk_prob", true},
                                         {"routed_scaling_factor", 2.5},
                                         {"router_bias_update_rate", 0.01}})},
        EqualModels{"deepseek_v3",
                    {{"q_lora_rank", Json()},
                     {"rope_interleave", false},
                     {"attention_bias", true},
                     {"first_k_dense_replace", 2},
                     {"rope_parameters", JsonObject{{"rope_type", "yarn"},
                                                    {"rope_theta", 50.0},
                                                    {"factor", 4.0},
                                                    {"mscale", 1.0},
                                                    {"mscale_all_dim", 1.0}}}},
                    joined(latent_keys, {{"q_lora_rank", Json()},
                                         {"rope_interleaved", false},
                                         {"attention_bias", true},
                                         {"rope_parameters", JsonObject{{"rope_type", "yarn"},
                                                                        {"rope_theta", 50.0},
                                                                        {"factor", 4.0},
                                                                        {"mscale", 1.0},
                                                                        {"mscale_all_dim", 1.0}}}})},
        EqualModels{
            "deepseek_v2",
            {{"num_experts_per_tok", 2}, {"topk_method", "group_limited_greedy"}, {"first_k_dense_replace", 0}},
            joined(latent_keys,
                   {{"mlp", "experts"}, {"num_experts", 4}, {"num_experts_per_tok", 2}, {"n_shared_experts", 2}})},
        EqualModels{"qwen3_moe",
                    {{"num_experts_per_tok", 2},
                     {"norm_topk_prob", true},
                     {"mlp_only_layers", JsonArray{0}},
                     {"use_sliding_window", true}},
                    {{"qk_norm", true},
                     {"mlp", JsonArray{"gated", "experts"}},
                     {"num_experts", 4},
                     {"num_experts_per_tok", 2},
                     {"norm_topk_prob", true},
                     {"n_group", 1},
                     {"topk_group", 1},
                     {"shared_expert_intermediate_size", 0}}},
        EqualModels{"qwen2_moe",
                    {{"num_experts_per_tok", 2},
                     {"qkv_bias", false},
                     {"hidden_act", "gelu"},
                     {"router_aux_loss_scope", "micro_batch"}},
                    {{"sliding_window", Json()},
                     {"mlp", "experts"},
                     {"num_experts", 4},
                     {"num_experts_per_tok", 2},
                     {"n_group", 1},
                     {"topk_group", 1},
                     {"hidden_act", "gelu"},
                     {"router_aux_loss_scope", "micro_batch"}}}),
    [](const auto& test) { return concat(test.param.family, "_", test.index); });

// Layers of both kinds: a latent row and keys with values are KV groups of their own.
TEST_F(Decoder, KvGroupsAndFlopsAreThoseOfEachLayer) {
  const JsonObject mixed{{"attention", JsonArray{"grouped", "latent"}},
                         {"kv_lora_rank", 8},
                         {"q_lora_rank", Json()},
                         {"layer_types", JsonArray{"sliding_attention", "full_attention"}}};
  const auto model = make_model(with(tiny_config("hone_decoder"), mixed), "test");
  ASSERT_EQ(model->kv_groups().size(), 2u);
  EXPECT_EQ(model->kv_groups()[0],
            (KvGroupShape{.num_kv_heads = 2, .key_dim = 6, .value_dim = 6, .window = 5, .planes = 1}));
  EXPECT_EQ(model->kv_groups()[1],
            (KvGroupShape{.num_kv_heads = 1, .key_dim = 12, .value_dim = 0, .window = 0, .planes = 1}));
  const int64_t mlps = 2 * 3 * 12 * 20, head = 19 * 12, grouped = 12 * (24 + 2 * 12) + 24 * 12,
                latent = 12 * 4 * (6 + 4) + 12 * (8 + 4) + 8 * 4 * (6 + 5) + 4 * 5 * 12;
  const ModelFlops flops = count_flops(*model, 30);
  EXPECT_EQ(flops.active_params, mlps + head + grouped + latent);
  // 4 heads: the window of 5 keys of 6 + 6 numbers, and 30 keys of 12 + 8 numbers.
  EXPECT_EQ(flops.forward_flops_per_token, 2 * flops.active_params + 2 * 4 * (5 * 12 + 30 * 20) + 3 * 4 * (5 + 30));
  EXPECT_EQ(flops.causal_train_flops_per_token, 6 * flops.active_params + 3 * 30 * 4 * (12 + 20));
}

TEST_F(Decoder, PartsThatDoNotFitAreRefused) {
  const auto latent = [](const JsonObject& changes) {
    return refusal(joined({{"attention", JsonArray{"grouped", "latent"}}, {"kv_lora_rank", 8}}, changes));
  };
  EXPECT_EQ(latent({}), "no error");
  EXPECT_PRED2(says, refusal({{"attention", "sparse"}}),
               "attention 'sparse' is not supported; supported: grouped, latent");
  EXPECT_PRED2(says, latent({{"kv_lora_rank", Json()}}), "has latent attention, but there is no kv_lora_rank");
  EXPECT_PRED2(says, latent({{"qk_norm", true}}), "qk_norm is true, but layer 1 has latent attention");
  EXPECT_PRED2(says, latent({{"attn_logit_softcapping", 2.0}}), "attn_logit_softcapping is set, but layer 1");
  EXPECT_PRED2(says, latent({{"partial_rotary_factor", 0.5}}), "choose qk_rope_head_dim in its place");
  EXPECT_PRED2(says, latent({{"no_rope_layers", JsonArray{1, 0}}}), "layer 1 has latent attention, which needs RoPE");
  EXPECT_EQ(latent({{"no_rope_layers", JsonArray{0, 1}}}), "no error");
  EXPECT_PRED2(says, latent({{"kv_share", 2}}), "kv_share is 2, but layer 1 has latent attention");
  EXPECT_PRED2(says, latent({{"qk_rope_head_dim", 3}}), "qk_rope_head_dim is 3, wants an even number");
  EXPECT_PRED2(says, latent({{"qk_nope_heads_dim", 3}}), "did you mean 'qk_nope_head_dim'?");
  const auto experts = [](const JsonObject& changes) {
    return refusal(joined({{"mlp", JsonArray{"gated", "experts"}}, {"num_experts", 4}}, changes));
  };
  EXPECT_EQ(experts({}), "no error");
  EXPECT_PRED2(says, experts({{"num_experts", Json()}}), "layer 1 has experts, but there is no num_experts");
  EXPECT_PRED2(says, experts({{"mlp_bias", true}}), "mlp_bias is true, but layer 1 has experts");
  EXPECT_PRED2(says, experts({{"n_shared_experts", 1}}),
               "n_shared_experts is 1 and shared_expert_intermediate_size 14");
  EXPECT_PRED2(says, experts({{"num_experts_per_tok", 5}}), "num_experts_per_tok is 5, more than the 4 experts");
  EXPECT_PRED2(says, experts({{"n_group", 3}}), "num_experts 4 is not a multiple of n_group 3");
  EXPECT_PRED2(says, experts({{"scoring_func", "tanh"}}),
               "scoring_func 'tanh' is not supported; supported: softmax, sigmoid");
  EXPECT_PRED2(says, experts({{"norm_topk_probs", true}}), "did you mean 'norm_topk_prob'?");
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
