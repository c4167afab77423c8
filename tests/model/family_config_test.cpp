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

TEST_F(FamilyConfig, WhatIsNotSupportedIsRefusedByName) {
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
