// Recipes of configs/optimizers in short: Muon with groups and seeds of its own, a WSD run in two stages and its
// branch.
#include "tests/e2e/recipe_run.h"
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> small = {"model.hidden_size=32", "model.intermediate_size=48",
                                        "model.num_hidden_layers=2", "eval=[]", "stage.tokenizer.documents=500"};

std::vector<std::string> with(std::vector<std::string> keys) {
  keys.insert(keys.begin(), small.begin(), small.end());
  return keys;
}

std::string weights(const fs::path& run, const std::string& checkpoint) {
  return read_file(run / "checkpoints" / checkpoint / "model.safetensors");
}

TEST(OptimizerRecipes, MuonLearnsAndRepeatsItsBitsOnRanks) {
  const std::vector<std::string> keys =
      with({"stage.pretrain.documents=2000", "stage.pretrain.steps=40", "stage.pretrain.batch_size=8",
            "stage.pretrain.warmup_steps=4", "parallel.micro_batch_multiple=2"});
  const RecipeRun one({}, "optimizers/muon", keys);
  const auto [first, last] = one.first_and_last("loss", 5);
  EXPECT_LT(last, first - 1);
  std::vector<std::string> ranks = keys;
  ranks.push_back("parallel.ranks=2");
  const RecipeRun two({}, "optimizers/muon", ranks);
  EXPECT_TRUE(weights(one.path(), "pretrain/step-40") == weights(two.path(), "pretrain/step-40"));
  EXPECT_EQ(one.values("loss"), two.values("loss"));
}

// Weights, data and sampling have seeds of their own; without them all follow `seed`.
TEST(OptimizerRecipes, SeedsAreSeparate) {
  const auto loss = [](std::vector<std::string> keys) {
    keys.insert(keys.begin(),
                {"stage.pretrain.documents=500", "stage.pretrain.steps=2", "stage.pretrain.batch_size=4"});
    return RecipeRun({}, "optimizers/muon", with(keys)).values("loss");
  };
  const std::vector<double> plain = loss({"seed=3", "data_seed=-1"});
  EXPECT_EQ(loss({"seed=3", "data_seed=3", "weights_seed=3", "sampling_seed=9"}), plain);
  EXPECT_EQ(loss({"seed=8", "data_seed=3", "weights_seed=3"}), plain);
  EXPECT_NE(loss({"seed=3", "data_seed=4"}), plain);
  EXPECT_NE(loss({"seed=3", "data_seed=3", "weights_seed=4"}), plain);
}

TEST(OptimizerRecipes, AWsdRunGoesOnAndIsBranched) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& recipe, const std::string& name, std::vector<std::string> keys) {
    std::vector<std::string> arguments = {"run", (source_folder() / "configs/optimizers" / recipe).string(),
                                          "runs=" + folder.path().string(), "name=" + name};
    arguments.insert(arguments.end(), keys.begin(), keys.end());
    return run_hone(arguments);
  };
  const Finished wsd = run("wsd.toml", "wsd",
                           with({"stage.stable.documents=500", "stage.stable.steps=6", "stage.stable.save_steps=3",
                                 "stage.stable.batch_size=4", "stage.decay.documents=500", "stage.decay.steps=3",
                                 "stage.decay.batch_size=4"}));
  ASSERT_EQ(wsd.code, 0) << wsd.err;
  EXPECT_NE(wsd.err.find("stage decay: the optimizer goes on from its step 6"), std::string::npos) << wsd.err;
  const std::string start = (folder.path() / "wsd/checkpoints/stable/step-3").string();
  const std::vector<std::string> keys = {"eval=[]", "model.path=" + start, "stage.decay.documents=500",
                                         "stage.decay.steps=4", "stage.decay.batch_size=4"};
  const Finished branch = run("wsd_branch.toml", "branch", keys);
  ASSERT_EQ(branch.code, 0) << branch.err;
  EXPECT_NE(branch.err.find("stage decay: the optimizer goes on from its step 3"), std::string::npos) << branch.err;
  // Killed and resumed, and on other ranks.
  std::vector<std::string> killed = keys;
  killed.insert(killed.begin(), {"run", (source_folder() / "configs/optimizers/wsd_branch.toml").string(),
                                 "runs=" + folder.path().string(), "name=killed", "stage.decay.save_steps=2"});
  end_at_checkpoint(killed, folder.path() / "killed", "decay/step-2", SIGKILL);
  const Finished resumed = run_hone({"run", "--resume", (folder.path() / "killed").string()});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(weights(folder.path() / "killed", "decay/step-4") == weights(folder.path() / "branch", "decay/step-4"));
  // What cannot go on is said before anything is computed.
  std::vector<std::string> other = keys;
  other.push_back("stage.decay.optimizer=muon");
  const Finished bad = run("wsd_branch.toml", "bad", other);
  EXPECT_NE(bad.code, 0);
  EXPECT_NE(bad.err.find("is adamw, and this stage's is muon"), std::string::npos) << bad.err;
  EXPECT_FALSE(fs::exists(folder.path() / "bad"));
}

}  // namespace
}  // namespace hone::test
