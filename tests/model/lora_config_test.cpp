#include "model/lora_config.h"

#include <cmath>

#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

const std::vector<std::string> modules = {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj",
                                          "model.layers.0.mlp.up_proj",      "model.layers.1.self_attn.q_proj",
                                          "model.layers.1.self_attn.o_proj", "model.layers.1.mlp.up_proj"};

std::vector<bool> found(const std::vector<std::string>& targets) { return find_targets(targets, modules); }

std::string refusal(const std::vector<std::string>& targets) {
  try {
    found(targets);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LoraTargets, AreNamesEndsOrExpressionsOfWholeNames) {
  using Chosen = std::vector<bool>;
  EXPECT_EQ(found({"q_proj"}), (Chosen{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(found({"self_attn.o_proj", "up_proj"}), (Chosen{0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(found({"model.layers.1.mlp.up_proj"}), (Chosen{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(found({R"(.*\.1\..*(q|o)_proj)"}), (Chosen{0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(found({"all-linear"}), (Chosen{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(found({}), (Chosen{1, 0, 0, 1, 0, 0}));
}

TEST(LoraTargets, ThatNameNothingAreErrorsThatListWhatThereIs) {
  EXPECT_PRED2(says, refusal({"q_prj"}),
               "no module is called 'q_prj'; did you mean 'q_proj'?; known: o_proj, q_proj, up_proj, all-linear");
  EXPECT_PRED2(says, refusal({"proj"}), "no module is called 'proj'");  // a suffix matches only after a dot
  EXPECT_PRED2(says, refusal({"layers.*q"}), "no module is called");    // an expression must match the entire name
  EXPECT_PRED2(says, refusal({"q_proj", "lm_head"}), "'lm_head'");      // each entry must match a module
  EXPECT_PRED2(says, refusal({"q_(proj"}), "target_modules");           // not a valid expression
}

TEST(LoraTargets, AreNamedAsShortAsTheyCanBe) {
  EXPECT_EQ(name_targets(found({"all-linear"}), modules), (std::vector<std::string>{"o_proj", "q_proj", "up_proj"}));
  EXPECT_EQ(name_targets(found({R"(.*(0.*q|o)_proj)"}), modules),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj", "o_proj"}));
  for (const char* target : {"q_proj", "all-linear", R"(.*\.1\..*)"})
    EXPECT_EQ(found(name_targets(found({target}), modules)), found({target})) << target;
}

TEST(LoraConfig, ScalesByTheRankOrItsRoot) {
  EXPECT_DOUBLE_EQ((LoraConfig{.r = 16, .lora_alpha = 8}.scale()), 0.5);
  EXPECT_DOUBLE_EQ((LoraConfig{.r = 16, .lora_alpha = 8, .use_rslora = true}.scale()), 2);
}

TEST(LoraConfig, GoesThroughPeftsJson) {
  const LoraConfig config{
      .r = 4, .lora_alpha = 6, .lora_dropout = 0.1, .use_rslora = true, .target_modules = {"q_proj", "up_proj"}};
  const Json json = adapter_config_of(config, "/models/base", false);
  EXPECT_EQ(json.at("peft_type").as_string(), "LORA");
  EXPECT_EQ(json.at("task_type").as_string(), "CAUSAL_LM");
  EXPECT_EQ(json.at("base_model_name_or_path").as_string(), "/models/base");
  const LoraConfig again = lora_config_of(json, "test");
  EXPECT_EQ(again.r, 4);
  EXPECT_EQ(again.lora_alpha, 6);
  EXPECT_EQ(again.lora_dropout, 0.1);
  EXPECT_TRUE(again.use_rslora);
  EXPECT_EQ(again.target_modules, config.target_modules);
}

TEST(LoraConfig, RefusesWhatItDoesNotDo) {
  const Json plain = adapter_config_of({.r = 4, .target_modules = {"q_proj"}}, "base", false);
  const auto refused = [&](const char* key, Json value) -> std::string {
    Json json = plain;
    json.set(key, std::move(value));
    try {
      lora_config_of(json, "adapter_config.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_PRED2(says, refused("use_dora", true), "adapter_config.json: use_dora is true");
  EXPECT_PRED2(says, refused("rank_pattern", JsonObject{{"q_proj", 2}}), "rank_pattern");
  EXPECT_PRED2(says, refused("modules_to_save", JsonArray{"lm_head"}), "modules_to_save names lm_head");
  EXPECT_PRED2(says, refused("bias", "all"), "bias is all, wants none");
  EXPECT_PRED2(says, refused("peft_type", "IA3"), "peft_type is IA3, wants LORA");
  EXPECT_PRED2(says, refused("init_lora_weights", "pissa"), "pissa, which changes the base model");
  EXPECT_PRED2(says, refused("r", 0), "r is 0");
  EXPECT_PRED2(says, refused("lora_dropout", 1.5), "lora_dropout is 1.5");
  EXPECT_PRED2(says, refused("target_parameters", JsonArray{"mlp.experts.gate_up_proj"}),
               "adapter_config.json: target_parameters names mlp.experts.gate_up_proj");
  EXPECT_EQ(refused("target_parameters", JsonArray{"mlp.gate_proj.weight"}), "");
  EXPECT_EQ(refused("target_parameters", JsonArray{}), "");
  EXPECT_EQ(refused("exclude_modules", JsonArray{}), "");
  EXPECT_EQ(refused("target_modules", "all-linear"), "");
}

}  // namespace
}  // namespace hone::test
