// Every recipe of configs/rl on the rows it names, for a few steps: it runs, its log is of finite numbers, and the sampler's log-probs are the
// learner's.
#include <cmath>

#include "tests/e2e/recipe_run.h"

namespace hone::test {
namespace {

const std::vector<std::string> few = {"stage.0.steps=2", "stage.0.prompts_per_step=4", "stage.0.mini_batches=1"};

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
    for (const double difference : run.values("sampling/sampling_logp_difference/max")) EXPECT_EQ(difference, 0);
  }
}

TEST(RlRecipes, AnObjectiveThatAcceptsNothingLeavesTheWeightsAlone) {
  HONE_SHARED_OR_SKIP(data, "data");
  std::vector<std::string> overrides = few;
  overrides.insert(overrides.end(), {"stage.0.weight=accept", "stage.0.threshold=2.0", "stage.0.mini_batches=3", "stage.0.weight_decay=0.0"});
  const RecipeRun run(data, "rl/rft", overrides);
  EXPECT_EQ(run.values("rft/accepted"), std::vector<double>(2, 0.0));
  EXPECT_EQ(run.values("loss"), std::vector<double>(2, 0.0));
  EXPECT_EQ(run.values("grad_norm"), std::vector<double>(2, 0.0));
}

}  // namespace
}  // namespace hone::test
