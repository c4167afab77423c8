// Default settings of training stages, and settings that are rejected.
#include <gtest/gtest.h>

#include "core/config/config.h"
#include "run/plan/plan.h"
#include "tests/support/errors.h"
#include "train/loop.h"
#include "train/stage.h"

namespace hone::test {
namespace {

Recipe read(const std::string& stage, const std::vector<std::string>& overrides = {}, const std::string& before = "") {
  return read_recipe(Config::from_text(before + "[[stage]]\n" + stage, "recipe.toml", overrides));
}
const std::string rl =
    "kind = \"rl\"\ngenerator = { kind = \"arithmetic\", digits = 1, heldout = 20 }\nreward = { kind = \"number\" }\n";
std::string rl_with(const std::string& more) { return rl + more; }

Json resolved(const Recipe& recipe) {
  Recipe copy = recipe;
  const Json all = to_json([&](Fields& f) { copy.fields(f); });
  return all.at("stage").as_array().at(0);
}

TEST(StageDefaults, LearningRatesAreTrls) {
  const std::tuple<std::string, double, std::string, double> expected[] = {
      {"kind = \"pretrain\"\n", 3e-4, "cosine", 0.1},
      {"kind = \"sft\"\n", 2e-5, "linear", 0},
      {"kind = \"preference\"\n", 1e-6, "linear", 0},
      {"kind = \"preference\"\nobjective = \"orpo\"\n", 1e-6, "linear", 0},
      {"kind = \"unpaired_preference\"\n", 1e-6, "linear", 0},
      {"kind = \"reward_model\"\n", 1e-4, "linear", 0},
      {rl, 1e-6, "linear", 0},
      {rl_with("objective = \"rloo\"\n"), 1e-6, "linear", 0},
      {rl_with("objective = \"ppo\"\n"), 3e-6, "linear", 0},
  };
  for (const auto& [stage, rate, type, least] : expected) {
    SCOPED_TRACE(stage);
    const Json keys = resolved(read(stage));
    EXPECT_EQ(keys.at("learning_rate").as_double(), rate);
    EXPECT_EQ(keys.at("lr_scheduler_type").as_string(), type);
    EXPECT_EQ(keys.at("min_lr_ratio").as_double(), least);
    EXPECT_EQ(keys.at("steps").as_int(), 100);
    EXPECT_EQ(keys.at("save_minutes").as_double(), 10) << "a crash costs ten minutes at most";
  }
  EXPECT_EQ(resolved(read(rl_with("objective = \"ppo\"\nlearning_rate = 0.5\n"))).at("learning_rate").as_double(), 0.5);
}

TEST(NumTrainEpochs, AreInsteadOfSteps) {
  const Recipe recipe = read("kind = \"sft\"\nnum_train_epochs = 2.5\n");
  const Json keys = resolved(recipe);
  EXPECT_EQ(keys.at("steps").as_int(), 0);
  EXPECT_EQ(keys.at("num_train_epochs").as_double(), 2.5);
  Recipe copy = recipe;
  EXPECT_NO_THROW(Config::from_text(to_toml([&](Fields& f) { copy.fields(f); }), "resolved.toml").as<Recipe>())
      << "the resolved recipe reads back";
  const std::string both = error_of([] { read("kind = \"sft\"\nsteps = 10\nnum_train_epochs = 2\n"); });
  EXPECT_NE(both.find("recipe.toml:3:"), std::string::npos) << both;
  EXPECT_NE(both.find("steps = 10 and num_train_epochs = 2: set only one of them"), std::string::npos) << both;
  EXPECT_NE(error_of([] { read("kind = \"sft\"\nsteps = 0\n"); }).find("steps must be positive"), std::string::npos);
  EXPECT_NE(error_of([] { read("kind = \"sft\"\nsteps = -3\n"); }).find("steps must be positive"), std::string::npos);
  EXPECT_NE(error_of([] { read("kind = \"sft\"\nnum_train_epochs = -1\n"); }).find("num_train_epochs must be in"),
            std::string::npos);
}

TEST(NumTrainEpochs, MakeAsManyStepsAsTheRowsFill) {
  const std::string rows = "generator = { kind = \"arithmetic\", digits = 1, heldout = 20 }\nlimit = 70\n";
  for (const auto& [epochs, steps] : {std::pair{"1", 3}, {"2", 5}, {"0.5", 2}, {"0.01", 1}})
    EXPECT_EQ(read("kind = \"sft\"\nbatch_size = 32\nnum_train_epochs = " + std::string(epochs) + "\n" + rows)
                  .stage[0]
                  .stage->steps(),
              steps)
        << epochs;
  EXPECT_EQ(read(rl_with("limit = 70\nprompts_per_step = 16\nnum_train_epochs = 2\n")).stage[0].stage->steps(), 9);
  LoopConfig config;
  EXPECT_EQ(config.num_steps(7), 100);
}

TEST(GroupsOfOne, AreRefusedWhereCompletionsAreCompared) {
  for (const char* objective :
       {"objective = \"grpo\"\n", "objective = \"grpo\"\nscale_rewards = \"none\"\n",
        "objective = \"grpo\"\nloss_type = \"dr_grpo\"\nmax_completion_length = 8\n", "objective = \"rloo\"\n",
        "objective = \"maxrl\"\n", "objective = \"reinforce_plus_plus\"\nbaseline = true\n"}) {
    SCOPED_TRACE(objective);
    const std::string alone = error_of([&] { read(rl_with(std::string(objective) + "num_generations = 1\n")); });
    EXPECT_NE(alone.find("recipe.toml:"), std::string::npos) << alone;
    EXPECT_NE(alone.find("num_generations = 1 it has no gradient"), std::string::npos) << alone;
    EXPECT_NE(
        error_of([&] { read(rl_with(std::string(objective) + "sampling = { temperature = 0.0 }\n")); }).find("greedy"),
        std::string::npos);
    EXPECT_NE(error_of([&] { read(rl_with(std::string(objective) + "sampling = { top_k = 1 }\n")); }).find("greedy"),
              std::string::npos);
    EXPECT_EQ(error_of([&] { read(rl_with(std::string(objective) + "num_generations = 2\n")); }), "no error");
  }
  for (const char* objective : {"ppo", "reinforce_plus_plus", "rft"})
    EXPECT_EQ(error_of([&] { read(rl_with(concat("objective = \"", objective, "\"\nnum_generations = 1\n"))); }),
              "no error")
        << objective;
}

TEST(GroupsOfOne, TheErrorNamesTheLine) {
  const std::string error = error_of([] { read("kind = \"rl\"\nnum_generations = 1\n"); });
  EXPECT_NE(error.find("recipe.toml:3:"), std::string::npos) << error;
}

// Such a stage would run, but train on neighbors in the batch as pairs, or save an untrained value head.
TEST(ObjectivesOfAnotherStage, AreRefusedByTheLine) {
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {"rl", "dpo", "dpo learns from pairs of a chosen and a rejected completion"},
      {"rl", "orpo", "hone collect makes them"},
      {"rl", "simpo", "pairs"},
      {"rl", "bradley_terry", "bradley_terry learns from the scores of a pair"},
      {"sft", "dpo", "this stage trains on single completions"},
      {"sft", "grpo", "grpo learns from completions that the stage itself samples"},
      {"preference", "sft", "this stage trains on pairs of a chosen"},
      {"online_dpo", "grpo", "this stage trains on pairs of a chosen"},
      {"online_dpo", "sft", "its objectives are dpo, orpo, simpo"},
      {"preference", "kto", "this stage trains on pairs"},
      {"preference", "bradley_terry", "bradley_terry learns from the scores of a pair"},
      {"preference", "ppo", "ppo learns from completions that the stage itself samples"},
      {"rl", "sft", "sft learns from single completions"},
      {"rl", "kto", "kto learns from labeled completions"},
      {"rl", "sft", "its objectives are grpo, maxrl, ppo"},
      {"sft", "kto", "its objectives are distill, sft"},
      {"sft", "rft", "rft learns from completions that the stage itself samples"},
      {"preference", "rft", "its objectives are dpo, orpo, simpo"},
      {"unpaired_preference", "sft", "this stage trains on labeled completions"},
      {"unpaired_preference", "rft", "its objectives are kto"},
      {"unpaired_preference", "dpo", "this stage trains on labeled completions"},
      {"unpaired_preference", "rloo", "rloo learns from completions that the stage itself samples"},
      {"reward_model", "dpo", "this stage trains on the scores of a pair"},
      {"reward_model", "sft", "this stage trains on the scores of a pair"},
  };
  for (const auto& [kind, objective, words] : cases) {
    SCOPED_TRACE(kind + " " + objective);
    const std::string error =
        error_of([&] { read(concat("kind = \"", kind, "\"\nobjective = \"", objective, "\"\n")); });
    EXPECT_NE(error.find("recipe.toml:3:"), std::string::npos) << error;
    EXPECT_NE(error.find(words), std::string::npos) << error;
  }
  for (const auto& [kind, objective] : {std::pair{"rl", "rft"},
                                        {"preference", "simpo"},
                                        {"preference", "orpo"},
                                        {"online_dpo", "dpo"},
                                        {"online_dpo", "simpo"},
                                        {"unpaired_preference", "kto"},
                                        {"sft", "sft"},
                                        {"reward_model", "bradley_terry"}})
    EXPECT_EQ(error_of([&] { read(concat("kind = \"", kind, "\"\nobjective = \"", objective, "\"\n")); }), "no error")
        << kind << objective;
}

TEST(ContradictingSettings, OfPolicyLossesAreRefusedWithTheirLine) {
  const auto refused = [](const std::string& more, const std::string& words) {
    const std::string error = error_of([&] { read(rl_with(more)); });
    EXPECT_NE(error.find("recipe.toml:5:"), std::string::npos) << error;
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  refused("rollout_rs = \"seq_mean_k1\"\n", "needs bounds");
  refused("top_entropy_quantile = 20\n", "must be in [0, 1]");
  refused("multi_objective_aggregation = \"normalise\"\n", "sum_then_normalize or normalize_then_sum");
  refused("loss_agg_mode = \"mean\"\n", "token-mean");
  EXPECT_NE(error_of([] {
              read(
                  "kind = \"rl\"\ngenerator = { kind = \"arithmetic\", digits = 1, heldout = 20 }\nreward = { kind = "
                  "\"composite\", parts = [ { kind = \"number\", name = \"length_penalty\" } ] }\nlength_penalty = "
                  "0.1\n");
            }).find("give it another name"),
            std::string::npos);
}

TEST(ContradictingSettings, AreRefused) {
  EXPECT_NE(error_of([] { read(rl_with("use_bias_correction_kl = true\n")); }).find("needs a beta above 0"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              read(rl_with("objective = \"ppo\"\nkl_coef = 0.0\nkl_ctrl = \"adaptive\"\n"));
            }).find("needs a kl_coef above 0"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              read("kind = \"unpaired_preference\"\ndesirable_weight = 0.0\nundesirable_weight = 0.0\n");
            }).find("both 0"),
            std::string::npos);
}

bool warns(const Recipe& recipe, const std::string& words) {
  for (const std::string& warning : recipe.stage[0].stage->warnings())
    if (warning.find(words) != std::string::npos) return true;
  return false;
}

TEST(SeldomMeantSettings, AreWarnedOf) {
  for (const char* level : {"sequence", "trajectory"})
    for (const char* type : {"dapo", "bnpo", "dr_grpo", "cispo", "cispo_relative"})
      EXPECT_TRUE(warns(read(rl_with(concat("importance_sampling_level = \"", level, "\"\nloss_type = \"", type,
                                            "\"\nmax_completion_length = 8\nepsilon_high = 5.0\n"))),
                        "long completions weigh more"))
          << level << " " << type;
  for (const char* type : {"grpo", "seq-mean-token-sum"})
    EXPECT_FALSE(warns(read(rl_with(concat("importance_sampling_level = \"sequence\"\nloss_type = \"", type, "\"\n"))),
                       "weigh more"))
        << type;
  EXPECT_FALSE(warns(read(rl), "weigh more"));
  EXPECT_FALSE(
      warns(read(rl_with("importance_sampling_level = \"sequence\"\nloss_agg_mode = \"seq-mean-token-mean\"\n")),
            "weigh more"));
  EXPECT_FALSE(warns(read(rl_with("objective = \"rloo\"\n")), "weigh more"));
  EXPECT_TRUE(warns(read(rl_with("epsilon = 0.0\n")), "epsilon is 0"));
  EXPECT_TRUE(warns(read("kind = \"sft\"\nlearning_rate = 0.0\n"), "learning_rate is 0"));
  EXPECT_TRUE(warns(read("kind = \"pretrain\"\nsteps = 10\nwarmup_steps = 10\n"), "never reaches its peak"));
  EXPECT_FALSE(warns(read("kind = \"pretrain\"\nsteps = 10\nwarmup_steps = 9\n"), "never reaches its peak"));
}

TEST(SampledDistribution, WhereItIsNotTheLearnersTheCorrectionIsOnAndTheResolvedRecipeSaysSo) {
  const auto mode = [](const std::string& more, const std::string& before = "") {
    return resolved(read(rl_with(more), {}, before)).at("importance_sampling_mode").as_string();
  };
  for (const char* setting : {"top_p = 0.9", "top_k = 40", "min_p = 0.1", "min_tokens = 2", "repetition_penalty = 1.1",
                              "presence_penalty = 0.5", "frequency_penalty = -0.5",
                              "logit_bias = [ { id = 3, bias = 1.0 } ]", "structured = { regex = \"[0-9]+\" }"}) {
    for (const char* objective : {"grpo", "ppo", "rloo", "maxrl", "reinforce_plus_plus"})
      EXPECT_EQ(mode(concat("objective = \"", objective, "\"\nsampling = { ", setting, " }\n")), "token_truncate")
          << setting << " " << objective;
    const Recipe off = read(rl_with(concat("importance_sampling_mode = \"none\"\nsampling = { ", setting, " }\n")));
    EXPECT_EQ(resolved(off).at("importance_sampling_mode").as_string(), "none");
    EXPECT_TRUE(warns(off, "importance_sampling_mode = none")) << setting;
  }
  EXPECT_EQ(mode("objective = \"ppo\"\nsampling = { temperature = 0.0 }\n"), "token_truncate");
  EXPECT_EQ(mode("max_staleness = 1\n"), "token_truncate");
  EXPECT_EQ(mode("", "[rollout]\nquantization = \"int8\"\n"), "token_truncate");
  EXPECT_EQ(mode("sampling = { top_p = 0.9 }\nimportance_sampling_mode = \"sequence_mask\"\n"), "sequence_mask");
  for (const char* same :
       {"", "sampling = { temperature = 0.6, max_tokens = 9, stop = [\"x\"], ignore_eos = true, top_p = 1.0 }\n",
        "sampling = { logit_bias = [ { id = 3, bias = 0.0 } ] }\n"})
    EXPECT_EQ(mode(same), "auto") << same;
}

}  // namespace
}  // namespace hone::test
