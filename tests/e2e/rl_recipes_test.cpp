// Every recipe of configs/rl on its rows for a few steps: it runs, its log has finite numbers and the metrics of its
// objective, the sampler's log-probs equal the learner's, and the state of an objective and a critic is resumed.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/e2e/recipe_run.h"
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

const std::vector<std::string> few = {"stage.0.steps=2", "stage.0.prompts_per_step=4", "stage.0.num_mini_batches=1"};

// The metrics that a recipe's settings add to the log.
const std::map<std::string, const char*> metrics = {{"async", "staleness/max"},
                                                    {"cispo", "cispo_clip_ratio"},
                                                    {"correction", "sampling/importance_sampling_ratio/mean"},
                                                    {"dapo", "clip_ratio/delta_mean"},
                                                    {"dppo", "actor/pg_clipfrac_lower"},
                                                    {"dynamic_sampling", "filter_groups/kept_ratio"},
                                                    {"gdpo", "rewards/length_penalty/mean"},
                                                    {"grpo", "kl"},
                                                    {"gspo", "clip_ratio/region_mean"},
                                                    {"ppo", "loss/value_avg"},
                                                    {"ppo_separate_critic", "critic/grad_norm"},
                                                    {"reinforce_plus_plus", "objective/kl"},
                                                    {"reinforce_plus_plus_baseline", "kl"},
                                                    {"rejection", "rollout_corr/rollout_rs_masked_fraction"},
                                                    {"rft", "rft/accepted"},
                                                    {"rloo", "objective/non_score_reward"},
                                                    {"sapo", "actor/ppo_kl"},
                                                    {"top_entropy", "top_entropy/selected"}};

TEST(RlRecipes, EachRunsOnRealRows) {
  HONE_SHARED_OR_SKIP(data, "data");
  for (const auto& entry : std::filesystem::directory_iterator(source_folder() / "configs" / "rl")) {
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    const RecipeRun run(data, "rl/" + name, few);
    EXPECT_EQ(run.values("reward").size(), 2u);
    read_jsonl(run.path() / "metrics.jsonl", [](const Json& row, int64_t) {
      for (const auto& [metric, value] : row.as_object()) EXPECT_TRUE(std::isfinite(value.as_double())) << metric;
    });
    const size_t on_policy =
        name == "async" || name == "rejection" ? 1 : 2;  // on-policy steps: the weight of their completions is 1
    const auto expect = [&](const std::string& of, double value) {
      std::vector<double> values = run.values(of);
      values.resize(std::min(on_policy, values.size()));
      EXPECT_EQ(values, std::vector<double>(values.size(), value)) << of;
    };
    expect("sampling/sampling_logp_difference/max", 0);
    for (const char* bound : {"min", "mean", "max"})
      expect(std::string("sampling/importance_sampling_ratio/") + bound, 1);
    if (const auto metric = metrics.find(name); metric != metrics.end()) {
      EXPECT_FALSE(run.values(metric->second).empty()) << metric->second;
    }
  }
}

// Batches are sampled ahead with older weights, so that there is something to reject.
TEST(RlRecipes, TokenSelectionKilledAndResumedIsTheUninterruptedRun) {
  HONE_SHARED_OR_SKIP(data, "data");
  const std::vector<std::string> overrides = {"stage.0.steps=6",
                                              "stage.0.prompts_per_step=4",
                                              "stage.0.save_steps=2",
                                              "stage.0.save_total_limit=0",
                                              "stage.0.max_staleness=1",
                                              "stage.0.rollout_rs=seq_mean_k1",
                                              "stage.0.rollout_rs_threshold=0.99_1.01"};
  const RecipeRun whole(data, "rl/top_entropy", overrides);
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  kill_and_resume(RecipeRun::arguments("rl/top_entropy", folder.path(), overrides), run, "grpo/step-2",
                  {"HONE_DATA=" + data.string()});
  for (const char* metric : {"top_entropy/threshold", "rollout_corr/rollout_rs_masked_fraction", "opsm_clipfrac"}) {
    std::vector<double> values;
    read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) { values.push_back(row.at(metric).as_double()); });
    EXPECT_EQ(values, whole.values(metric)) << metric;
  }
  const std::vector<double> rejected = whole.values("rollout_corr/rollout_rs_masked_fraction");
  EXPECT_GT(*std::ranges::max_element(rejected), 0);
  expect_same_checkpoints(run, whole.path(),
                          {"grpo/step-6/model.safetensors", "grpo/step-6/trainer/trainer.safetensors"});
}

// Quantiles, moments of rewards and rejections are those of the whole batch on each rank.
TEST(RlRecipes, TokenSelectionAndSeveralRewardsOnTwoRanksHaveTheBitsOfOne) {
  HONE_SHARED_OR_SKIP(data, "data");
  const auto overrides = [](int ranks) {
    return std::vector<std::string>{"stage.0.steps=3",
                                    "stage.0.prompts_per_step=4",
                                    "stage.0.max_staleness=1",
                                    "stage.0.loss_type=sapo",
                                    "stage.0.top_entropy_quantile=0.3",
                                    "stage.0.off_policy_mask_threshold=0.02",
                                    "stage.0.rollout_rs=seq_mean_k1",
                                    "stage.0.rollout_rs_threshold=0.9_1.1",
                                    "device=cpu",
                                    "parallel.micro_batch_multiple=2",
                                    concat("parallel.ranks=", ranks)};
  };
  const RecipeRun one(data, "rl/gdpo", overrides(1)), two(data, "rl/gdpo", overrides(2));
  for (const char* metric : {"top_entropy/threshold", "rollout_corr/rollout_rs_masked_fraction", "opsm_clipfrac",
                             "rewards/length_penalty/mean", "loss"})
    EXPECT_EQ(one.values(metric), two.values(metric)) << metric;
  expect_same_checkpoints(one.path(), two.path(), {"grpo/step-3/model.safetensors"});
}

TEST(RlRecipes, AnObjectiveThatAcceptsNothingLeavesTheWeightsAlone) {
  HONE_SHARED_OR_SKIP(data, "data");
  std::vector<std::string> overrides = few;
  overrides.insert(overrides.end(), {"stage.0.weight=accept", "stage.0.threshold=2.0", "stage.0.num_mini_batches=3",
                                     "stage.0.weight_decay=0.0"});
  const RecipeRun run(data, "rl/rft", overrides);
  EXPECT_EQ(run.values("rft/accepted"), std::vector<double>(2, 0.0));
  EXPECT_EQ(run.values("loss"), std::vector<double>(2, 0.0));
  EXPECT_EQ(run.values("grad_norm"), std::vector<double>(2, 0.0));
}

// An adaptive KL weight and a critic's trunk, head and optimizer are part of the checkpoint.
TEST(RlRecipes, PpoKilledAndResumedIsTheUninterruptedRun) {
  HONE_SHARED_OR_SKIP(data, "data");
  const std::vector<std::string> overrides = {"stage.0.steps=6", "stage.0.prompts_per_step=4", "stage.0.save_steps=2",
                                              "stage.0.save_total_limit=0", "stage.0.horizon=50"};
  const RecipeRun whole(data, "rl/ppo_separate_critic", overrides);
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  kill_and_resume(RecipeRun::arguments("rl/ppo_separate_critic", folder.path(), overrides), run, "ppo/step-2",
                  {"HONE_DATA=" + data.string()});
  std::vector<double> weights;
  read_jsonl(run / "metrics.jsonl",
             [&](const Json& row, int64_t) { weights.push_back(row.at("objective/kl_coef").as_double()); });
  EXPECT_EQ(weights, whole.values("objective/kl_coef"));
  EXPECT_NE(weights.front(), weights.back());
  expect_same_checkpoints(run, whole.path(),
                          {"ppo/step-6/model.safetensors", "ppo/step-6/trainer/trainer.safetensors"});
}

}  // namespace
}  // namespace hone::test
