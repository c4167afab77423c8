// The recipes of configs/experiment in order, as for a comparison of objectives: each starts from the result of the
// previous one. With a small model and few steps they check what holds at any size: the recipes run, on-policy
// log-probs are exact, and another seed gives another run.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/io/jsonl.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class ExperimentTest : public ::testing::Test {
 protected:
  fs::path run(const std::string& recipe, std::vector<std::string> overrides) const {
    const std::string name = "run_" + std::to_string(++runs_);
    overrides.insert(overrides.begin(),
                     {"run", recipe_path(recipe), "runs=" + folder_.path().string(), "name=" + name, "eval=[]"});
    const Finished done = run_hone(overrides);
    EXPECT_EQ(done.code, 0) << recipe << ": " << done.err;
    return folder_.path() / name;
  }
  static std::string recipe_path(const std::string& name) {
    return (source_folder() / "configs" / "experiment" / (name + ".toml")).string();
  }
  static std::vector<double> column(const fs::path& run, const std::string& metric) {
    std::vector<double> out;
    read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) {
      if (const Json* value = row.find(metric)) out.push_back(value->as_double());
    });
    return out;
  }
  TemporaryFolder folder_;
  mutable int runs_ = 0;
};

TEST_F(ExperimentTest, EveryObjectiveStartsFromOneSft) {
  const fs::path pretrained =
      run("pretrain", {"model.hidden_size=64", "model.num_hidden_layers=2", "model.num_attention_heads=2",
                       "model.intermediate_size=128", "model.initializer_range=0.12", "stage.tokenizer.documents=2000",
                       "stage.pretrain.documents=2000", "stage.pretrain.steps=40", "stage.pretrain.batch_size=16",
                       "stage.pretrain.warmup_steps=5", "stage.pretrain.learning_rate=5e-3"}) /
      "checkpoints" / "pretrain" / "step-40";
  const std::vector<double> losses = column(pretrained.parent_path().parent_path().parent_path(), "loss");
  ASSERT_EQ(losses.size(), 40u);
  EXPECT_LT(losses.back(), losses.front() - 1);
  const fs::path start = run("sft", {"model.path=" + pretrained.string(), "stage.sft.steps=3", "stage.sft.limit=100"}) /
                         "checkpoints" / "sft" / "step-3";

  const fs::path pairs = folder_.path() / "pairs.jsonl";
  const Finished sampled = run_hone({"pairs", (source_folder() / "configs" / "experiment" / "pairs.toml").string(),
                                     "--model", start.string(), "--out", pairs.string(), "limit=6", "num_generations=4",
                                     "reward={ kind = 'length', limit = 96, target = 1 }", "sampling.max_tokens=90"});
  ASSERT_EQ(sampled.code, 0) << sampled.err;
  run("dpo", {"model.path=" + start.string(), "stage.dpo.steps=2", "stage.dpo.files=[\"" + pairs.string() + "\"]",
              "stage.dpo.batch_size=2"});

  for (const char* objective : {"ppo", "grpo", "dr_grpo", "gspo", "grpo_budget"}) {
    const std::string stage = std::string("stage.") + objective + ".";
    const fs::path done =
        run(objective, {"model.path=" + start.string(), stage + "steps=2", stage + "prompts_per_step=2",
                        stage + "num_generations=4", stage + "num_mini_batches=1", stage + "sampling.max_tokens=40"});
    EXPECT_EQ(column(done, "sampling/sampling_logp_difference/max"), std::vector<double>(2, 0.0)) << objective;
  }
}

}  // namespace
}  // namespace hone::test
