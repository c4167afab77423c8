// SFT's options and the preference objectives on real rows, run from their recipes: losses fall, chosen and rejected
// separate, and a killed and resumed run gives the same bits.
#include "tests/e2e/recipe_run.h"
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// A run that is killed after a step of its last stage is saved, and then resumed, ends like an uninterrupted one.
void expect_resumed(const fs::path& data, const std::string& recipe, const std::string& stage,
                    const std::vector<std::string>& overrides, int step) {
  const RecipeRun whole(data, recipe, overrides);
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  kill_and_resume(RecipeRun::arguments(recipe, folder.path(), overrides), run, concat(stage, "/step-", step),
                  {"HONE_DATA=" + data.string()});
  expect_same_rows(whole.path() / "metrics.jsonl", run / "metrics.jsonl");
  const auto kept = [](const fs::path& path) {
    return parse_json(read_file(path / "run.json"), "run.json").at("stages").as_array().back().at("kept_step").as_int();
  };
  EXPECT_EQ(kept(whole.path()), kept(run));
  expect_same_checkpoints(whole.path(), run, {concat(stage, "/step-", kept(run), "/model.safetensors")});
}

class PreferenceRecipes : public ::testing::Test {
 protected:
  // The common start of the recipes: the result of dpo.toml's first stage.
  static fs::path start(const fs::path& data) {
    static const RecipeRun run(data, "preference/dpo", {"stage.dpo.steps=1", "stage.dpo.eval_share=0"});
    return run.path() / "checkpoints" / "sft" / "step-60";
  }
  static RecipeRun from_start(const fs::path& data, const std::string& name, std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(),
                     {"model.path=" + start(data).string(), "stage.sft.steps=1", "stage.sft.learning_rate=0"});
    return {data, name, overrides};
  }
  static void expect_learns(const RecipeRun& run) {
    EXPECT_GT(run.first_and_last("rewards/margins", 5).second, run.first_and_last("rewards/margins", 5).first);
    EXPECT_GT(run.first_and_last("rewards/accuracies", 5).second, 0.7);
    EXPECT_LT(run.values("eval_loss").back(), run.values("eval_loss").front());
  }
};

TEST_F(PreferenceRecipes, EveryLossOfDpoTellsChosenFromRejected) {
  HONE_SHARED_OR_SKIP(data, "data");
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"stage.dpo.loss_type=sigmoid", "stage.dpo.precompute_ref_log_probs=true"},
        {"stage.dpo.loss_type=sigmoid", "stage.dpo.label_smoothing=0.1"},
        {"stage.dpo.loss_type=robust", "stage.dpo.label_smoothing=0.1"},
        {"stage.dpo.loss_type=hinge"},
        {"stage.dpo.loss_type=ipo"},
        {"stage.dpo.loss_type=sigmoid_norm", "stage.dpo.beta=2"},
        {"stage.dpo.ld_alpha=0.5"}}) {
    SCOPED_TRACE(overrides.front());
    std::vector<std::string> shorter = overrides;
    for (const char* key : {"steps=16", "limit=200", "max_length=96", "batch_size=12", "eval_steps=4"})
      shorter.push_back(std::string("stage.dpo.") + key);
    expect_learns(from_start(data, "preference/dpo", shorter));
  }
}

TEST_F(PreferenceRecipes, ReferenceLogProbsAheadOrWhenNeededGiveTheSameBits) {
  HONE_SHARED_OR_SKIP(data, "data");
  const std::vector<std::string> common = {"stage.dpo.steps=10", "stage.dpo.limit=100"};
  std::vector<std::string> ahead = common;
  ahead.push_back("stage.dpo.precompute_ref_log_probs=true");
  const RecipeRun live = from_start(data, "preference/dpo", common),
                  precomputed = from_start(data, "preference/dpo", ahead);
  EXPECT_EQ(live.values("loss"), precomputed.values("loss"));
  EXPECT_EQ(live.values("eval_loss"), precomputed.values("eval_loss"));
  expect_same_checkpoints(live.path(), precomputed.path(), {"dpo/step-10/model.safetensors"});
}

TEST_F(PreferenceRecipes, SimpoAndOrpoLearnWithoutAReference) {
  HONE_SHARED_OR_SKIP(data, "data");
  expect_learns(from_start(data, "preference/simpo",
                           {"stage.simpo.steps=20", "stage.simpo.limit=200", "stage.simpo.max_length=96",
                            "stage.simpo.eval_steps=5", "stage.simpo.learning_rate=1e-3"}));
  const RecipeRun orpo(data, "preference/orpo",
                       {"stage.orpo.steps=30", "stage.orpo.limit=300", "stage.orpo.max_length=128"});
  EXPECT_LT(orpo.first_and_last("nll_loss", 5).second, orpo.first_and_last("nll_loss", 5).first - 1);
  EXPECT_LT(orpo.values("eval_loss").back(), orpo.values("loss").front() - 1);
}

TEST_F(PreferenceRecipes, KtoLearnsFromSingleReplies) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun kto =
      from_start(data, "preference/kto",
                 {"stage.kto.steps=16", "stage.kto.limit=300", "stage.kto.max_length=96", "stage.kto.eval_steps=4"});
  EXPECT_GT(kto.first_and_last("rewards/margins", 5).second, kto.first_and_last("rewards/margins", 5).first + 0.1);
  EXPECT_LT(kto.values("eval_loss").back(), kto.values("eval_loss").front());
  EXPECT_EQ(kto.values("kl").front(), 0);  // the policy is still the reference
  for (const double kl : kto.values("kl")) EXPECT_GE(kl, 0);
}

TEST(OnlineDpoRecipe, RewardsRiseAndTheSamplersLogProbsAreTheLearners) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun run(data, "preference/online_dpo", {"stage.0.steps=60"});
  const auto [first, last] = run.first_and_last("reward", 10);
  EXPECT_GT(last, 1.5 * first);
  EXPECT_EQ(run.values("sampling/sampling_logp_difference/max"), std::vector<double>(60, 0.0));
  for (const double share : run.values("pairs/prompts_ratio")) EXPECT_GT(share, 0);
  for (const double margin : run.values("objective/scores_margin")) EXPECT_GT(margin, 0);
  EXPECT_EQ(run.values("logps/chosen").size(), 60u);
}

TEST_F(PreferenceRecipes, KilledAndResumedIsTheUninterruptedRun) {
  HONE_SHARED_OR_SKIP(data, "data");
  for (const char* name : {"dpo", "kto"}) {
    SCOPED_TRACE(name);
    std::vector<std::string> overrides = {"stage.sft.steps=1"};
    for (const char* key : {"steps=24", "save_steps=2", "limit=60", "max_length=96", "batch_size=4", "eval_steps=3"})
      overrides.push_back(concat("stage.", name, ".", key));
    expect_resumed(data, concat("preference/", name), name, overrides, 4);
  }
}

TEST(RewardModelRecipe, KilledAndResumedIsTheUninterruptedRun) {
  HONE_SHARED_OR_SKIP(data, "data");
  std::vector<std::string> overrides;
  for (const char* key : {"steps=24", "save_steps=2", "limit=60", "max_length=96", "batch_size=4", "eval_steps=3"})
    overrides.push_back(concat("stage.reward_model.", key));
  expect_resumed(data, "preference/reward_model", "reward_model", overrides, 4);
}

TEST(RewardModelRecipe, ItsScoresTellChosenFromRejectedAndAreARewardOfRl) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun trained(
      data, "preference/reward_model",
      {"stage.reward_model.steps=40", "stage.reward_model.limit=400", "stage.reward_model.max_length=128"});
  EXPECT_GT(trained.first_and_last("accuracy", 5).second, 0.75);
  EXPECT_GT(trained.values("eval_accuracy").back(), 0.7);
  const fs::path folder = trained.path() / "checkpoints" / "reward_model" / "step-40";
  EXPECT_EQ(
      parse_json(read_file(folder / "config.json"), "config.json").at("architectures").as_array().at(0).as_string(),
      "LlamaForSequenceClassification");
  const RecipeRun policy(
      data, "preference/dpo",
      {"stage=[{kind = 'rl', name = 'grpo', files = ['" + (data / "sft" / "rasbt_instruction_1100.jsonl").string() +
       "'], prompt = '{instruction}', answer = '', prompts_per_step = 2, num_generations = 3, steps = 2, sampling = "
       "{max_tokens = 8}, "
       "reward = {kind = 'reward_model', path = '" +
       folder.string() + "'}}]"});
  ASSERT_EQ(policy.values("rewards/reward_model/mean").size(), 2u);
  for (const double deviation : policy.values("reward_std")) EXPECT_GT(deviation, 0);
}

// Overfits soon: the held-out loss rises.
const std::vector<std::string> hasty = {
    "stage.sft.steps=200",          "stage.sft.limit=120",      "stage.sft.eval_steps=4", "stage.sft.save_steps=3",
    "stage.sft.learning_rate=2e-2", "stage.sft.max_length=128", "stage.sft.batch_size=4"};

TEST(SftOptions, TheStageEndsOnceWhatIsHeldOutIsNoLongerLearntAndLeavesItsBest) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun run(data, "sft_options", hasty);
  const std::vector<double> losses = run.values("eval_loss");
  const auto best = static_cast<int64_t>(std::min_element(losses.begin(), losses.end()) - losses.begin()) + 1;
  const Json state = parse_json(read_file(run.path() / "run.json"), "run.json");
  const Json& stage = state.at("stages").as_array().at(0);
  EXPECT_EQ(stage.at("steps").as_int(), 4 * static_cast<int64_t>(losses.size()));
  EXPECT_LT(stage.at("steps").as_int(), 200);
  EXPECT_EQ(stage.at("kept_step").as_int(), 4 * best);
  EXPECT_EQ(static_cast<int64_t>(losses.size()), best + 2);  // early_stopping_patience
  EXPECT_TRUE(
      fs::exists(run.path() / "checkpoints" / "sft" / ("step-" + std::to_string(4 * best)) / "model.safetensors"));
  double before = 0;
  for (const double tokens : run.values(
           "num_tokens")) {  // a step is packed until the next sample, of up to max_length, does not fit in 4 * 128
    EXPECT_LE(tokens - before, 4 * 128);
    EXPECT_GT(tokens - before, 3 * 128);
    before = tokens;
  }
}

TEST(SftOptions, KilledAndResumedIsTheUninterruptedRun) {
  HONE_SHARED_OR_SKIP(data, "data");
  expect_resumed(data, "sft_options", "sft", hasty, 6);
}

TEST(SftOptions, TokensWeighedByTheirProbabilityAreLearntToo) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun run(
      data, "sft_options",
      {"stage.sft.loss_type=dft", "stage.sft.steps=30", "stage.sft.limit=300", "stage.sft.early_stopping_patience=0"});
  EXPECT_EQ(run.values("loss").size(), 30u);
  EXPECT_FALSE(run.values("eval_loss").empty());
}

}  // namespace
}  // namespace hone::test
