// config.json of the families with options of their own: both spellings, defaults, and what is refused.
#include <gtest/gtest.h>

#include "model/forward.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

std::string refusal(const std::string& family, const JsonObject& changes) {
  return error_of([&] { make_model(with(tiny_config(family), changes), "test.json"); });
}

class FamilyConfig : public testing::Test {
 protected:
  std::vector<float> hidden(const Json& config) {
    const std::vector<int32_t> ids = random_tokens(20, 19, 1);
    return hidden_of(context_, *make_tiny(context_, config, false), {{BatchPart{ids}}});
  }
  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

Json without(Json config, std::string_view key) {
  std::erase_if(config.object_ref(), [&](const auto& member) { return member.first == key; });
  return config;
}

TEST_F(FamilyConfig, GemmaThreeReadsBothSpellingsOfRope) {
  const JsonObject scaling{{"rope_type", "linear"}, {"factor", 2.0}};
  const Json four = with(tiny_config("gemma3_text"), {{"sliding_window_pattern", 2},
                                                      {"rope_theta", 900.0},
                                                      {"rope_local_base_freq", 30.0},
                                                      {"rope_scaling", scaling}});
  Json full = scaling;
  full.set("rope_theta", 900.0);
  const Json sliding = JsonObject{{"rope_type", "default"}, {"rope_theta", 30.0}};
  const Json five =
      without(with(tiny_config("gemma3_text"),
                   {{"layer_types", JsonArray{"sliding_attention", "full_attention"}},
                    {"rope_parameters", JsonObject{{"full_attention", full}, {"sliding_attention", sliding}}}}),
              "rope_theta");
  EXPECT_EQ(hidden(four), hidden(five));
  EXPECT_NE(hidden(four), hidden(without(four, "rope_scaling")));
  for (const Json& config : {four, five}) {
    const Json saved = make_model(config, "test.json")->config();
    EXPECT_EQ(saved.at("rope_theta").as_double(), 900);
    EXPECT_EQ(saved.at("rope_local_base_freq").as_double(), 30);
    EXPECT_EQ(saved.at("rope_scaling").at("factor").as_double(), 2);
    EXPECT_EQ(saved.at("rope_parameters").at("full_attention").at("rope_theta").as_double(), 900);
    EXPECT_EQ(saved.at("rope_parameters").at("sliding_attention").at("rope_theta").as_double(), 30);
    EXPECT_EQ(hidden(saved), hidden(config));
  }
}

TEST_F(FamilyConfig, GemmaTwoAlternatesWindowsAndCapsByDefault) {
  const Json config = tiny_config("gemma2");
  EXPECT_EQ(hidden(config), hidden(with(config, {{"layer_types", JsonArray{"sliding_attention", "full_attention"}}})));
  EXPECT_EQ(hidden(config), hidden(with(config, {{"attn_logit_softcapping", 50.0}})));
  EXPECT_NE(hidden(config), hidden(with(config, {{"attn_logit_softcapping", 0.1}})));
  EXPECT_EQ(make_model(config, "test.json")->shape().logit_softcap, 30);
  const auto uncapped = make_model(with(config, {{"final_logit_softcapping", Json()}}), "test.json");
  EXPECT_EQ(uncapped->shape().logit_softcap, 0);
  EXPECT_TRUE(uncapped->config().at("final_logit_softcapping").is_null());
}

TEST_F(FamilyConfig, SmolLmThreeSkipsRopeInEveryFourthLayer) {
  const Json four_layers = with(tiny_config("smollm3"), {{"num_hidden_layers", 4}});
  EXPECT_EQ(hidden(four_layers), hidden(with(four_layers, {{"no_rope_layers", JsonArray{1, 1, 1, 0}}})));
  EXPECT_NE(hidden(four_layers), hidden(with(four_layers, {{"no_rope_layers", JsonArray{1, 1, 1, 1}}})));
  EXPECT_EQ(hidden(with(four_layers, {{"no_rope_layer_interval", 2}})),
            hidden(with(four_layers, {{"no_rope_layers", JsonArray{1, 0, 1, 0}}})));
}

TEST_F(FamilyConfig, LongropeServesTheOriginalContext) {
  const Json config = with(
      tiny_config("phi3"),
      {{"original_max_position_embeddings", 20},
       {"rope_scaling",
        JsonObject{{"type", "su"}, {"short_factor", JsonArray{1.0, 1.5, 2.0}}, {"long_factor", JsonArray{3, 4, 5}}}}});
  const auto model = make_model(config, "test.json");
  EXPECT_EQ(model->shape().max_positions, 20);
  EXPECT_EQ(model->config().at("max_position_embeddings").as_int(), 40);
  EXPECT_EQ(model->config().at("rope_scaling").at("type").as_string(), "longrope");
  EXPECT_EQ(hidden(model->config()), hidden(config));
  EXPECT_NE(hidden(config), hidden(without(config, "rope_scaling")));
}

// hone's own member: long_factor for all positions, and all positions of the model.
TEST_F(FamilyConfig, LongropeTakesTheLongFactorsForAllPositions) {
  const auto config = [](const JsonArray& short_factor, const JsonArray& long_factor) {
    return with(
        tiny_config("phi3"),
        {{"original_max_position_embeddings", 10},
         {"rope_scaling", JsonObject{{"type", "su"}, {"short_factor", short_factor}, {"long_factor", long_factor}}}});
  };
  const JsonArray ones{1.0, 1.5, 2.0}, threes{3, 4, 5};
  const Json long_rope = with(config(ones, threes), {{"use_long_rope", true}});
  const auto model = make_model(long_rope, "test.json");
  EXPECT_EQ(model->shape().max_positions, 40);
  EXPECT_TRUE(model->config().at("use_long_rope").as_bool());
  EXPECT_EQ(hidden(model->config()), hidden(long_rope));
  const auto first_ten = [&](const Json& of) {
    const std::vector<int32_t> ids = random_tokens(10, 19, 1);
    return hidden_of(context_, *make_tiny(context_, of, false), {{BatchPart{ids}}});
  };
  EXPECT_EQ(first_ten(long_rope), first_ten(config(threes, threes)));
  EXPECT_NE(first_ten(long_rope), first_ten(config(ones, threes)));
  EXPECT_EQ(first_ten(with(long_rope, {{"use_long_rope", false}})), first_ten(config(ones, threes)));
  EXPECT_PRED2(says, refusal("phi3", {{"use_long_rope", true}}),
               "test.json: use_long_rope is true and rope_parameters.rope_type is 'default'; use_long_rope is for "
               "'longrope'");
}

TEST_F(FamilyConfig, QwensWindowIsThatOfTransformersIfItIsAbsent) {
  for (const char* family : {"qwen2", "qwen3", "qwen2_moe", "qwen3_moe"}) {
    const Json config =
        with(without(tiny_config(family), "sliding_window"),
             {{"use_sliding_window", true}, {"max_window_layers", int64_t{family == std::string("qwen2_moe")}}});
    const auto model = make_model(config, "test.json");
    EXPECT_EQ(model->config().at("sliding_window").as_int(), 4096) << family;
    const auto slides = [](const KvGroupShape& group) { return group.window == 4096; };
    EXPECT_TRUE(std::ranges::any_of(model->kv_groups(), slides)) << family;
    const auto whole = make_model(with(config, {{"use_sliding_window", false}}), "test.json");
    EXPECT_FALSE(whole->config().find("sliding_window")) << family;
  }
}

// A recipe's [model] has the names of the other families, which transformers reads, too.
TEST_F(FamilyConfig, Gpt2sSizesHaveTwoNames) {
  const Json config = JsonObject{{"model_type", "gpt2"},         {"vocab_size", 19},         {"hidden_size", 24},
                                 {"num_hidden_layers", 3},       {"num_attention_heads", 2}, {"n_inner", 40},
                                 {"max_position_embeddings", 50}};
  const ModelShape shape = make_model(config, "test.json")->shape();
  EXPECT_EQ(shape.hidden_size, 24);
  EXPECT_EQ(shape.num_layers, 3);
  EXPECT_EQ(shape.num_attention_heads, 2);
  EXPECT_EQ(shape.intermediate_size, 40);
  EXPECT_EQ(shape.max_positions, 50);
  EXPECT_EQ(make_model(with(config, {{"n_embd", 32}}), "test.json")->shape().hidden_size, 32);
}

TEST_F(FamilyConfig, ClipOfQueriesKeysAndValues) {
  const Json config = tiny_config("olmoe");
  EXPECT_NE(hidden(with(config, {{"clip_qkv", 0.5}})), hidden(config));
  EXPECT_EQ(hidden(with(config, {{"clip_qkv", 1e6}})), hidden(config));
  EXPECT_EQ(hidden(with(config, {{"clip_qkv", Json()}})), hidden(config));
  EXPECT_PRED2(says, refusal("olmoe", {{"clip_qkv", 0}}), "test.json: clip_qkv is 0, wants a positive number");
  EXPECT_PRED2(says, refusal("olmoe", {{"clip_qkv", "8"}}), "test.json: clip_qkv: expected a number, got a string");
}

// transformers has no default for these two, and the model's positions for the original context.
TEST_F(FamilyConfig, Llama3RopeNeedsItsFrequencyFactors) {
  const auto scaled = [](JsonObject more) {
    more.emplace_back("rope_type", "llama3");
    more.emplace_back("factor", 4.0);
    return JsonObject{{"rope_scaling", std::move(more)}};
  };
  EXPECT_PRED2(says, refusal("llama", scaled({{"high_freq_factor", 4.0}})),
               "test.json: rope_scaling.low_freq_factor is missing");
  EXPECT_PRED2(says, refusal("llama", scaled({{"low_freq_factor", 1.0}, {"high_freq_factor", Json()}})),
               "test.json: rope_scaling.high_freq_factor is missing");
  const auto with_context = [&](std::optional<int64_t> context) {
    JsonObject more{{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
    if (context) more.emplace_back("original_max_position_embeddings", *context);
    return hidden(with(tiny_config("llama"), scaled(more)));
  };
  EXPECT_EQ(with_context({}), with_context(40));
  EXPECT_NE(with_context({}), with_context(10));
  // Beside the scaling it wins, as in transformers 5.
  const JsonObject both{{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 20}};
  EXPECT_EQ(hidden(with(with(tiny_config("llama"), scaled(both)), {{"original_max_position_embeddings", 10}})),
            with_context(10));
}

// Every message of a wrong type names the file.
TEST_F(FamilyConfig, WrongTypesNameTheFile) {
  const auto rope = [](JsonObject object) { return JsonObject{{"rope_scaling", std::move(object)}}; };
  const std::tuple<const char*, JsonObject, const char*> cases[] = {
      {"llama", rope({{"rope_type", 3}}), "rope_scaling.rope_type: expected a string, got an integer"},
      {"llama", rope({{"rope_type", "linear"}, {"factor", "2"}}), "rope_scaling.factor: expected a number"},
      {"llama", rope({{"rope_type", "yarn"}, {"factor", 2.0}, {"truncate", 1}}), "rope_scaling.truncate: expected a"},
      {"llama", {{"rope_parameters", JsonObject{{"rope_theta", "big"}}}}, "rope_parameters.rope_theta: expected a"},
      {"phi3", {{"partial_rotary_factor", "half"}}, "partial_rotary_factor: expected a number, got a string"},
      {"phi3",
       rope({{"type", "longrope"}, {"short_factor", JsonArray{1, "2", 3}}, {"long_factor", JsonArray{1, 2, 3}}}),
       "rope_scaling.short_factor: expected a number, got a string"},
      {"gemma2", {{"layer_types", JsonArray{1, 2}}}, "layer_types: expected a string, got an integer"},
      {"smollm3", {{"no_rope_layers", JsonArray{"0", "1"}}}, "no_rope_layers: expected an integer, got a string"},
      {"qwen3_moe", {{"mlp_only_layers", JsonArray{"0"}}}, "mlp_only_layers: expected an integer, got a string"},
      {"qwen3_moe", {{"mlp_only_layers", 1}}, "mlp_only_layers is an integer, wants a list of layers"},
      {"qwen3_moe", {{"router_aux_loss_coef", "0"}}, "router_aux_loss_coef: expected a number, got a string"},
      {"mixtral", {{"router_jitter_noise", "0"}}, "router_jitter_noise: expected a number, got a string"},
      {"llama", {{"num_nextn_predict_layers", 1}, {"mtp_loss_coef", "0"}}, "mtp_loss_coef: expected a number"}};
  for (const auto& [family, changes, words] : cases)
    EXPECT_PRED2(says, refusal(family, changes), concat("test.json: ", words));
}

TEST_F(FamilyConfig, GptOssHasTheDefaultsOfTransformers) {
  const Json config = without(tiny_config("gpt_oss"), "sliding_window");
  const auto model = make_model(config, "test.json");
  const Json saved = model->config();
  EXPECT_EQ(saved.at("architectures").as_array()[0].as_string(), "GptOssForCausalLM");
  EXPECT_EQ(saved.at("sliding_window").as_int(), 128);
  EXPECT_EQ(saved.at("swiglu_limit").as_double(), 7);
  EXPECT_TRUE(saved.at("attention_bias").as_bool());
  EXPECT_EQ(saved.at("rope_parameters").at("rope_type").as_string(), "yarn");
  EXPECT_FALSE(saved.at("rope_parameters").at("truncate").as_bool());
  EXPECT_EQ(saved.at("layer_types").as_array()[0].as_string(), "sliding_attention");
  EXPECT_EQ(saved.at("layer_types").as_array()[1].as_string(), "full_attention");
  EXPECT_EQ(hidden(saved), hidden(config));
  EXPECT_NE(hidden(with(config, {{"sliding_window", 3}})), hidden(config));
  EXPECT_NE(hidden(with(config, {{"rope_scaling", JsonObject{{"rope_type", "default"}}}})), hidden(config));
  EXPECT_NE(hidden(with(config, {{"swiglu_limit", 0.1}})), hidden(config));
  // Without head_dim a head has 64 dimensions.
  EXPECT_EQ(make_model(without(config, "head_dim"), "test.json")->shape().head_dim, 64);
}

TEST_F(FamilyConfig, GptOssReadsOpenAisNameOfTheChoices) {
  const Json old = without(with(tiny_config("gpt_oss"), {{"experts_per_token", 2}}), "num_experts_per_tok");
  const Json config = with(tiny_config("gpt_oss"), {{"num_experts_per_tok", 2}});
  EXPECT_EQ(hidden(old), hidden(config));
  EXPECT_NE(hidden(old), hidden(tiny_config("gpt_oss")));
}

TEST_F(FamilyConfig, DeepSeekReadsWhatItsAttentionNeeds) {
  const Json config = tiny_config("deepseek_v3");
  const auto model = make_model(config, "test.json");
  const Json saved = model->config();
  EXPECT_EQ(saved.at("architectures").as_array()[0].as_string(), "DeepseekV3ForCausalLM");
  EXPECT_EQ(saved.at("head_dim").as_int(), 4);  // transformers rotates this many numbers
  EXPECT_EQ(saved.at("num_key_value_heads").as_int(), 4);
  EXPECT_TRUE(saved.at("rope_interleave").as_bool());
  EXPECT_EQ(hidden(saved), hidden(config));
  EXPECT_NE(hidden(with(config, {{"rope_interleave", false}})), hidden(config));
  EXPECT_NE(hidden(with(config, {{"routed_scaling_factor", 1.0}})), hidden(config));
  // YaRN's temperature is squared into the scale of the scores if mscale_all_dim is set.
  const auto yarn = [&](double mscale) {
    return with(config,
                {{"rope_scaling",
                  JsonObject{{"type", "yarn"}, {"factor", 4.0}, {"mscale", mscale}, {"mscale_all_dim", mscale}}}});
  };
  EXPECT_NE(hidden(yarn(1.0)), hidden(yarn(0.5)));
  // One latent row per token and layer: rank + rotated numbers.
  ASSERT_EQ(model->kv_groups().size(), 1u);
  EXPECT_EQ(model->kv_groups()[0].key_dim, 12);
  EXPECT_EQ(model->kv_groups()[0].value_dim, 0);
  // DeepSeek-V2 has groups only if topk_method says so.
  EXPECT_EQ(make_model(without(tiny_config("deepseek_v2"), "n_group"), "test.json")->config().find("n_group"), nullptr);
}

// As in transformers 5: rope_scaling wins over rope_parameters, and a number that is 0 or null counts as missing.
TEST_F(FamilyConfig, RopeScalingWinsOverRopeParameters) {
  const auto scaled = [](JsonObject scaling) {
    return with(tiny_config("qwen3"), {{"rope_scaling", std::move(scaling)}});
  };
  const Json linear = scaled({{"rope_type", "linear"}, {"factor", 4.0}});
  const auto both = [&](JsonObject parameters) { return with(linear, {{"rope_parameters", std::move(parameters)}}); };
  EXPECT_NE(hidden(linear), hidden(tiny_config("qwen3")));
  EXPECT_EQ(hidden(both({{"rope_type", "default"}})), hidden(linear));
  EXPECT_EQ(hidden(both({{"rope_theta", 100.0}})), hidden(linear));  // that beside them
  EXPECT_EQ(hidden(make_model(both({{"rope_theta", 100.0}}), "test.json")->config()), hidden(linear));
  EXPECT_PRED2(says, error_of([&] {
                 make_model(both({{"rope_theta", 50.0}}), "test.json");
               }),
               "rope_theta is 100, but rope_parameters.rope_theta is 50.0; remove one of");
  const auto yarn = [&](JsonObject more) {
    more.emplace_back("rope_type", "yarn");
    more.emplace_back("original_max_position_embeddings", 16);
    return scaled(std::move(more));
  };
  EXPECT_EQ(hidden(yarn({{"factor", 4.0}, {"beta_fast", 0.0}})), hidden(yarn({{"factor", 4.0}, {"beta_fast", 32.0}})));
  const auto positions = static_cast<double>(make_model(yarn({{"factor", 2.0}}), "test.json")->shape().max_positions);
  EXPECT_EQ(hidden(yarn({{"factor", Json()}})), hidden(yarn({{"factor", positions / 16}})));
  for (const char* type : {"linear", "yarn", "llama3"})
    EXPECT_PRED2(says, refusal("qwen3", {{"rope_scaling", JsonObject{{"rope_type", type}}}}),
                 concat("rope_scaling.factor is missing: rope_type '", type, "'"));
  EXPECT_PRED2(says,
               refusal("qwen3", {{"rope_scaling",
                                  JsonObject{{"rope_type", "yarn"}, {"factor", 2.0}, {"attention_factor", 0.0}}}}),
               "attention_factor is 0");
}

// As in transformers 5: rope_scaling adds to rope_parameters.full_attention, and bases stand beside them.
TEST_F(FamilyConfig, GemmaThreeReadsBothSpellingsTogether) {
  const auto five = [](JsonObject full, JsonObject sliding) {
    return Json(JsonObject{{"full_attention", std::move(full)}, {"sliding_attention", std::move(sliding)}});
  };
  const JsonObject layers{{"layer_types", JsonArray{"full_attention", "sliding_attention"}}};
  const Json gemma = with(tiny_config("gemma3_text"), layers);
  const Json plain = five({{"rope_type", "default"}, {"rope_theta", 100.0}},
                          {{"rope_type", "default"}, {"rope_theta", 30.0}}),
             linear = five({{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 100.0}},
                           {{"rope_type", "default"}, {"rope_theta", 30.0}}),
             bare = five({{"rope_type", "default"}}, {{"rope_type", "default"}});
  const JsonObject scaling{{"rope_type", "linear"}, {"factor", 4.0}};
  const auto expected = hidden(with(gemma, {{"rope_parameters", linear}}));
  EXPECT_NE(hidden(with(gemma, {{"rope_parameters", plain}})), expected);
  EXPECT_EQ(hidden(with(gemma, {{"rope_parameters", plain}, {"rope_scaling", scaling}})), expected);
  const JsonObject older{{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(hidden(with(gemma, {{"rope_parameters", plain}, {"rope_scaling", older}})), expected);
  EXPECT_EQ(hidden(with(gemma, {{"rope_parameters", bare}, {"rope_scaling", scaling}, {"rope_local_base_freq", 30.0}})),
            expected);
}

TEST_F(FamilyConfig, DeepSeekReadsTheOtherNameOfItsExperts) {
  const Json config = without(without(tiny_config("deepseek_v3"), "n_routed_experts"), "num_experts");
  EXPECT_EQ(make_model(with(config, {{"num_local_experts", 6}}), "test.json")->config().at("n_routed_experts"),
            Json(6));
  EXPECT_PRED2(says, refusal("deepseek_v3", {{"num_local_experts", 6}}),
               "n_routed_experts is 4 and num_local_experts is 6; they are two names of one number");
}

TEST_F(FamilyConfig, DeepSeekTakesTheNumberOfExpertsOfARecipe) {
  Json config = without(without(without(tiny_config("deepseek_v3"), "n_routed_experts"), "n_group"), "topk_group");
  config = with(config, {{"num_experts", 6}, {"num_experts_per_tok", 2}});
  const Json saved = make_model(config, "test.json")->config();
  EXPECT_EQ(saved.at("n_routed_experts").as_int(), 6);
  EXPECT_EQ(saved.at("n_group").as_int(), 1);
}

TEST_F(FamilyConfig, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_PRED2(says, refusal("deepseek_v3", {{"n_group", 3}}), "n_routed_experts 4 is not a multiple of n_group 3");
  EXPECT_PRED2(says, refusal("deepseek_v3", {{"topk_group", 3}}), "topk_group is 3, more than the 2 groups");
  EXPECT_PRED2(says, refusal("deepseek_v3", {{"topk_group", 1}}), "topk_group 1 leaves 2 experts");
  EXPECT_PRED2(says, refusal("deepseek_v3", {{"qk_rope_head_dim", 5}}), "qk_rope_head_dim is 5");
  EXPECT_PRED2(says, refusal("deepseek_v3", {{"qk_nope_head_dim", 0}}), "qk_nope_head_dim is 0, wants 1 to");
  for (const Json& factor : {Json(0.5), Json()})
    EXPECT_PRED2(
        says,
        refusal("llama",
                {{"rope_scaling",
                  JsonObject{{"rope_type", "yarn"}, {"factor", factor}, {"original_max_position_embeddings", 80}}}}),
        factor.is_null() ? "rope_scaling.factor is 0.5 (max_position_embeddings / original"
                         : "rope_scaling.factor is 0.5, wants 1 or more");
  EXPECT_PRED2(says, refusal("gemma3", {{"text_config", JsonObject{{"model_type", "gemma3_text"}}}}),
               "model_type 'gemma3' is not supported: its text model lies in text_config");
  EXPECT_PRED2(says, refusal("deepseek_v3", {{"topk_method", "greedy"}}), "topk_method 'greedy'");
  EXPECT_PRED2(says, refusal("deepseek_v2", {{"topk_method", "group_limited_greedy"}, {"n_group", Json()}}),
               "no n_group");
  EXPECT_PRED2(says, refusal("gpt_oss", {{"swiglu_limit", 0}}), "swiglu_limit is 0");
  EXPECT_PRED2(says, refusal("gpt_oss", {{"num_experts_per_tok", 9}}), "more than the 4 experts");
  EXPECT_PRED2(says, refusal("gpt_oss", {{"sliding_window", Json()}}), "no sliding_window");
  EXPECT_PRED2(says, refusal("gpt_oss", {{"quantization_config", JsonObject{{"quant_method", "gptq"}}}}),
               "quant_method 'gptq' is not supported; supported: mxfp4");
  EXPECT_PRED2(says, refusal("gemma2", {{"use_bidirectional_attention", true}}), "use_bidirectional_attention = true");
  EXPECT_PRED2(says, refusal("gemma2", {{"final_logit_softcapping", -1.0}}), "final_logit_softcapping is -1");
  EXPECT_PRED2(says, refusal("gemma2", {{"sliding_window", Json()}}), "no sliding_window");
  EXPECT_PRED2(says, refusal("gemma3_text", {{"hidden_activation", "tanh"}}), "hidden_activation 'tanh'");
  EXPECT_PRED2(says, refusal("gemma3_text", {{"rope_parameters", 3}}), "rope_parameters wants an object");
  EXPECT_PRED2(says, refusal("smollm3", {{"no_rope_layers", JsonArray{1}}}),
               "no_rope_layers wants a list of at least 2");
  EXPECT_PRED2(says, refusal("smollm3", {{"no_rope_layers", JsonArray{1, 2}}}), "no_rope_layers contains 2");
  EXPECT_PRED2(says, refusal("phi3", {{"partial_rotary_factor", 1.5}}), "partial_rotary_factor is 1.5");
  EXPECT_PRED2(says, refusal("phi3", {{"head_dim", 10}, {"partial_rotary_factor", 0.5}}), "5 dimensions");
  EXPECT_PRED2(says, refusal("phi3", {{"rope_scaling", JsonObject{{"type", "longrope"}}}}),
               "rope_scaling.short_factor wants a list of 3 numbers");
  EXPECT_PRED2(says,
               refusal("phi3", {{"rope_scaling", JsonObject{{"type", "longrope"},
                                                            {"short_factor", JsonArray{1, 0, 2}},
                                                            {"long_factor", JsonArray{1, 1, 1}}}}}),
               "short_factor contains 0, wants positive numbers");
  EXPECT_PRED2(says, refusal("olmo2", {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor other than 1");
}

}  // namespace
}  // namespace hone::test
