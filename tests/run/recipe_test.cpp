// The recipes of the source tree: each one is valid, and every objective has one.
#include "run/recipe/recipe.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"
#include "train/objective.h"

namespace hone::test {
namespace {

// Files of configs/ that other commands than hone run read.
const std::set<std::string> other_files = {"experiment/pairs.toml", "distill/collect.toml", "distill/held_out.toml"};

// The recipe files of the tree.
std::vector<std::filesystem::path> recipe_files() {
  ::setenv("HONE_DATA", "/nowhere", 0);
  std::vector<std::filesystem::path> out;
  const std::filesystem::path configs = source_folder() / "configs";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(configs)) {
    const std::string name = std::filesystem::relative(entry.path(), configs).string();
    if (entry.path().extension() != ".toml" || name.starts_with("tasks/") || other_files.contains(name)) continue;
    out.push_back(entry.path());
  }
  return out;
}

std::string text_of(Recipe& recipe) {
  return to_toml([&](Fields& f) { recipe.fields(f); });
}

// A TOML text with the keys of each table in reverse.
std::string reordered(const std::string& text) {
  std::vector<std::string> blocks;
  std::string block;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) {
      blocks.push_back(block);
      block.clear();
    }
    block += line + "\n";
  }
  blocks.push_back(block);
  std::string out;
  for (const std::string& one : blocks) {
    std::vector<std::string> keys;
    std::string header;
    std::istringstream in(one);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("["))
        header = line + "\n";
      else if (!line.empty())
        keys.push_back(line);
    }
    out += header;
    for (auto key = keys.rbegin(); key != keys.rend(); ++key) out += *key + "\n";
  }
  return out;
}

TEST(Recipes, EveryOneReadsAndEveryObjectiveHasOne) {
  std::set<std::string> used;
  for (const std::filesystem::path& file : recipe_files()) {
    SCOPED_TRACE(file);
    Recipe recipe;
    ASSERT_NO_THROW(recipe = read_recipe(file.string(), {}));
    const Json resolved = to_json([&](Fields& f) { recipe.fields(f); });
    for (const Json& stage : resolved.at("stage").as_array())
      if (const Json* objective = stage.find("objective")) used.insert(objective->as_string());
  }
  for (const std::string& name : objectives().names()) EXPECT_TRUE(used.contains(name)) << name;
}

TEST(Recipes, WhatIsWrittenReadsBackToTheSameText) {
  for (const std::filesystem::path& file : recipe_files()) {
    SCOPED_TRACE(file);
    Recipe recipe = read_recipe(file.string(), {});
    const std::string text = text_of(recipe);
    Recipe again = read_recipe(Config::from_text(text, "resolved.toml"));
    EXPECT_EQ(text_of(again), text);
  }
}

TEST(Recipes, WritingAndDocumentingLeaveTheRecipeUnchanged) {
  for (const std::filesystem::path& file : recipe_files()) {
    SCOPED_TRACE(file);
    Recipe recipe = read_recipe(file.string(), {});
    std::vector<const Stage*> stages;
    for (const StageSpec& spec : recipe.stage) stages.push_back(spec.stage.get());
    const std::string text = text_of(recipe);
    to_json([&](Fields& f) { recipe.fields(f); });
    document_fields("recipe", [&](Fields& f) { recipe.fields(f); });
    check_settings([&](Fields& f) { recipe.fields(f); });
    for (size_t i = 0; i < stages.size(); ++i) EXPECT_EQ(recipe.stage[i].stage.get(), stages[i]);
    EXPECT_EQ(text_of(recipe), text);
  }
}

TEST(Recipes, TheOrderOfKeysDoesNotMatter) {
  for (const std::filesystem::path& file : recipe_files()) {
    SCOPED_TRACE(file);
    Recipe recipe = read_recipe(file.string(), {});
    const std::string text = text_of(recipe), other = reordered(text);
    EXPECT_NE(other, text);
    Recipe again = read_recipe(Config::from_text(other, "reordered.toml"));
    EXPECT_EQ(text_of(again), text);
  }
}

TEST(Recipes, ACopySharesNothingThatReadingChanges) {
  const std::string text =
      "[[stage]]\nkind = \"rl\"\nreward = { kind = \"number\" }\n"
      "generator = { kind = \"arithmetic\" }\nlearning_rate = ";
  Recipe first = read_recipe(Config::from_text(text + "0.5\n", "a.toml"));
  const std::string before = text_of(first);
  Recipe second = first;
  Config::from_text(text + "0.25\n", "b.toml").read([&](Fields& f) { second.fields(f); });
  EXPECT_EQ(text_of(first), before);
  EXPECT_NE(text_of(second), before);
}

// A recipe with names from before version 1.0 (docs/dev/glossary.md), and the current names.
// The keys of multi-token prediction change config.json, and are refused where a model has no such layers.
TEST(Recipes, MultiTokenPredictionIsPartOfTheModel) {
  ModelSource source;
  source.vocab_size = 300;
  EXPECT_FALSE(source.make_config(0).find("num_nextn_predict_layers"));
  const std::unique_ptr<Model> plain = make_model(source.make_config(0), "test");
  source.num_nextn_predict_layers = 2;
  source.mtp_loss_coef = 0.1;
  const Json config = source.make_config(0);
  EXPECT_EQ(config.at("num_nextn_predict_layers"), Json(2));
  EXPECT_EQ(config.at("mtp_loss_coef"), Json(0.1));
  const std::unique_ptr<Model> ahead = make_model(config, "test");
  EXPECT_GT(ahead->num_params(), plain->num_params());
  EXPECT_NO_THROW(check_losses(source, *ahead));
  EXPECT_THROW(check_losses(source, *plain), Error);
  source.path = "folder";  // its files say how many layers there are
  EXPECT_THROW(check_losses(source, *plain), Error);
  source.mtp_loss_coef = -1;
  EXPECT_THROW(check_losses(source, *plain), Error);  // the key would change nothing
  EXPECT_NO_THROW(check_losses(source, *ahead));
  source.num_nextn_predict_layers = 0;
  EXPECT_NO_THROW(check_losses(source, *plain));
  // Routers' keys need experts, not a loss of another kind.
  source.router.aux_loss_coef = 0.1;
  EXPECT_THROW(check_losses(source, *ahead), Error);
}

TEST(Recipes, LongFactorsOfLongropeAreAMemberOfConfig) {
  ModelSource source;
  EXPECT_TRUE(source.config_changes().empty());
  source.use_long_rope = true;
  source.vocab_size = 300;
  EXPECT_EQ(source.make_config(0).at("use_long_rope"), Json(true));
}

TEST(Recipes, ExpertsOfATokenNeedExperts) {
  const auto read = [](const std::string& keys) {
    const std::string stage = "[[stage]]\nkind = \"tokenizer\"\nfiles = [\"corpus.jsonl\"]\n";
    return error_of([&] { read_recipe(Config::from_text("[model.router]\n" + keys + stage, "a.toml")); });
  };
  EXPECT_NE(read("num_experts_per_tok = 3\n").find("num_experts_per_tok has no effect without num_experts"),
            std::string::npos);
  EXPECT_EQ(read("num_experts_per_tok = 3\nnum_experts = 4\n"), "no error");
}

// The keys of [model.decoder] are members of config.json, and belong to one family.
TEST(Recipes, ComposedDecodersAreDescribedInToml) {
  const auto read = [](const std::string& family) {
    return read_recipe(Config::from_text("[model]\nfamily = \"" + family + R"("
vocab_size = 300
[model.decoder]
norm_type = "layer_norm"
norm_placement = ["parallel", "pre", "pre", "both"]
mlp = ["plain"]
hidden_act = ["relu2"]
sliding_window = 16
rope_interleaved = true
partial_rotary_factor = 0.5
no_rope_layers = [1, 1, 0, 0]
kv_share = 2
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic" }
)",
                                         "composed.toml"));
  };
  const Json config = make_model(read("hone_decoder").model.make_config(0), "test")->config();
  for (const auto& [key, value] : JsonObject{{"norm_type", "layer_norm"},
                                             {"sliding_window", 16},
                                             {"rope_interleaved", true},
                                             {"partial_rotary_factor", 0.5},
                                             {"kv_share", 2},
                                             {"norm_placement", JsonArray{"parallel", "pre", "pre", "both"}},
                                             {"no_rope_layers", JsonArray{1, 1, 0, 0}}})
    EXPECT_EQ(config.at(key), value) << key;
  EXPECT_THROW(read("llama"), Error);
  ModelSource plain;
  plain.vocab_size = 300;
  EXPECT_FALSE(plain.make_config(0).find("norm_type"));
}

TEST(Recipes, ComposeLatentAttentionAndExperts) {
  const auto read = [](const std::string& decoder, const std::string& router = "num_experts = 8") {
    return read_recipe(Config::from_text(concat("[model]\nfamily = \"hone_decoder\"\nhidden_size = 32\n"
                                                "num_hidden_layers = 2\nnum_attention_heads = 4\nvocab_size = 64\n"
                                                "[model.decoder]\n",
                                                decoder, "\n[model.router]\n", router,
                                                "\n[[stage]]\nkind = \"pretrain\"\ngenerator = { kind = "
                                                "\"arithmetic\" }\n"),
                                         "composed.toml"));
  };
  const auto refusal = [&](const std::string& decoder) { return error_of([&] { read(decoder); }); };
  const std::string experts = "mlp = [\"gated\", \"experts\"]\n", latent = "attention = [\"latent\"]\n";
  const Recipe recipe = read(experts + latent +
                             "kv_lora_rank = 24\nqk_rope_head_dim = 6\nscoring_func = \"sigmoid\"\n"
                             "norm_topk_prob = true\nn_shared_experts = 1");
  const std::unique_ptr<Model> model = make_model(recipe.model.make_config(0), "test");
  const Json config = model->config();
  for (const auto& [key, value] : JsonObject{{"attention", "latent"},
                                             {"mlp", JsonArray{"gated", "experts"}},
                                             {"kv_lora_rank", 24},
                                             {"q_lora_rank", Json()},
                                             {"qk_nope_head_dim", 8},
                                             {"qk_rope_head_dim", 6},
                                             {"v_head_dim", 8},
                                             {"num_experts", 8},
                                             {"scoring_func", "sigmoid"},
                                             {"norm_topk_prob", true},
                                             {"n_shared_experts", 1}})
    EXPECT_EQ(config.at(key), value) << key;
  EXPECT_EQ(model->kv_groups().front().key_dim, 30);
  EXPECT_GT(model->num_aux_sums(), 0);
  EXPECT_PRED2(says, refusal("v_head_dim = 8"), "v_head_dim has no effect without kv_lora_rank");
  EXPECT_PRED2(says, refusal("norm_topk_prob = true"), "norm_topk_prob has no effect unless mlp has experts");
  EXPECT_PRED2(says, refusal("kv_lora_rank = 8"), "kv_lora_rank has no effect unless attention has latent");
  EXPECT_EQ(refusal("kv_lora_rank = 8\nattention = [\"latnt\"]"), "no error");  // the model's own error names it
  const ModelSource dense = read("").model;
  EXPECT_PRED2(says, error_of([&] { check_losses(dense, *make_model(dense.make_config(0), "test")); }),
               "has no experts in this shape");
}

TEST(Recipes, OldNamesAreReadAndNewOnesWritten) {
  Recipe recipe = read_recipe(Config::from_text(R"(
[rollout]
max_sequences = 7
max_batch_tokens = 70
prefix_caching = false
[[stage]]
kind = "rl"
generator = { kind = "arithmetic" }
reward = { kind = "number" }
prompts_per_step = 4
sampling = { stop_ids = [3, 5] }
mini_batches = 2
max_failure_rate = 0.25
recompute = "block"
[[stage]]
kind = "labelled"
files = ["rows.jsonl"]
too_long = "error"
)",
                                                "old.toml"));
  const std::string text = text_of(recipe);
  for (const char* line :
       {"max_num_seqs = 7\n", "max_num_batched_tokens = 70\n", "enable_prefix_caching = false\n",
        "stop_token_ids = [3, 5]\n", "num_mini_batches = 2\n", "max_reward_failure_rate = 0.25\n",
        "recompute = \"full\"\n", "kind = \"unpaired_preference\"\nname = \"kto\"\n", "overlong_rows = \"error\"\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
  for (const char* old : {"max_sequences", "max_batch_tokens", "\nprefix_caching", "stop_ids", "\nmini_batches",
                          "max_failure_rate", "\"block\"", "labelled", "too_long"})
    EXPECT_EQ(text.find(old), std::string::npos) << old;
}

}  // namespace
}  // namespace hone::test
