// Complete runs of the program: the bits of a run, and stopping and resuming it.
#include <cstdlib>
#include <set>

#include "core/base/rng.h"
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::string recipe = tiny_recipe("tiny", 2, R"(
[[eval]]
task = "arithmetic"
limit = 4
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
packing = "documents"
max_length = 32
batch_size = 8
steps = 12
eval_steps = 5
save_steps = 5
save_total_limit = 0
[[stage]]
kind = "rl"
objective = "grpo"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
limit = 9
prompts_per_step = 3
filter_groups = { enable = true, max_num_gen_batches = 3 }
curriculum = { revisit_epochs = 2, easy = 0.6, hard = 0.0, threshold = 0.02 }
num_generations = 4
num_mini_batches = 2
steps = 10
save_steps = 3
save_total_limit = 0
beta = 0.05
sampling = { temperature = 0.7, max_tokens = 8, thinking_budget = 4, thinking_end = "=" }
reward = { kind = "composite", parts = [ { kind = "number" }, { kind = "length", weight = 0.1, limit = 9, target = 3 } ] }
)");

class RunTest : public WholeRun {
 protected:
  RunTest() : WholeRun(recipe) {}
};

void expect_same_bits(const fs::path& a, const fs::path& b) {
  for (const char* log : {"metrics.jsonl", "samples.jsonl"}) expect_same_rows(a / log, b / log);
  for (const std::string stage : {"pretrain/step-12/", "grpo/step-10/"})
    expect_same_checkpoints(
        a, b, {stage + "model.safetensors", stage + "trainer/trainer.safetensors", stage + "tokenizer.json"});
}

TEST_F(RunTest, RepeatsBitForBitWithOneThreadAndWithTwo) {
  const fs::path two = run("two", {"HONE_NUM_THREADS=2"});
  expect_same_bits(two, run("again", {"HONE_NUM_THREADS=2"}));
  expect_same_bits(two, run("one", {"HONE_NUM_THREADS=1"}));
}

TEST_F(RunTest, OnPolicyLogProbsDifferByNothing) {
  ASSERT_EQ(run_hone(arguments("on_policy", {"stage.grpo.num_mini_batches=1"})).code, 0);
  int64_t steps = 0;
  read_jsonl(folder.path() / "on_policy" / "metrics.jsonl", [&](const Json& row, int64_t) {
    const Json* difference = row.find("sampling/sampling_logp_difference/max");
    if (!difference) return;
    EXPECT_EQ(difference->as_double(), 0.0);
    ++steps;
  });
  EXPECT_EQ(steps, 10);
}

TEST_F(RunTest, TruncatedSamplingIsOffPolicyAndCorrectedFor) {
  const Finished done = run_hone(arguments("truncated", {"stage.grpo.sampling.top_p=0.5"}));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.err.find("completions are sampled off policy, since sampling sets top_p:"), std::string::npos)
      << done.err;
  const fs::path at = folder.path() / "truncated";
  EXPECT_NE(read_file(at / "recipe.toml").find("importance_sampling_mode = \"token_truncate\""), std::string::npos);
  int64_t steps = 0;
  read_jsonl(at / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (!row.find("sampling/sampling_logp_difference/max")) return;
    ++steps;
    EXPECT_GT(row.at("sampling/sampling_logp_difference/mean").as_double(), 0.1);
    // After truncation the kept tokens are likelier than before: the weight is the kept mass, at least top_p.
    EXPECT_LE(row.at("sampling/importance_sampling_ratio/max").as_double(), 1 + 1e-5);
    EXPECT_GE(row.at("sampling/importance_sampling_ratio/min").as_double(), 0.5 - 1e-5);
    EXPECT_LT(row.at("sampling/importance_sampling_ratio/mean").as_double(), 0.999);
  });
  EXPECT_EQ(steps, 10);
}

TEST_F(RunTest, RewardsThatNeverVaryAreToldOf) {
  const Finished done = run_hone(
      arguments("flat", {"stage.grpo.reward={ kind = 'length', limit = 65, target = 64 }",
                         "stage.grpo.filter_groups.enable=false", "stage.grpo.beta=0.0", "stage.grpo.steps=4"}));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.err.find("every group had zero variance"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("never varies"), std::string::npos) << done.err;
}

TEST_F(RunTest, EpochsAreAsManyStepsAsTheDataFill) {
  const Finished done = run_hone(arguments("epochs", {"stage.pretrain.steps=0", "stage.pretrain.num_train_epochs=0.5",
                                                      "stage.grpo.steps=0", "stage.grpo.num_train_epochs=1.1"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const fs::path at = folder.path() / "epochs";
  const JsonArray stages = parse_json(read_file(at / "run.json"), "run.json").at("stages").as_array();
  EXPECT_EQ(stages[1].at("steps").as_int(), 5) << "half of 80 documents, 8 a step";
  EXPECT_EQ(stages[2].at("steps").as_int(), 4) << "9 prompts, 3 a step, and a tenth of them again";
  int64_t last = 0;
  read_jsonl(at / "metrics.jsonl", [&](const Json& row, int64_t) { last = std::max(last, row.at("step").as_int()); });
  EXPECT_EQ(last, 9) << "steps are numbered across stages";
}

TEST_F(RunTest, KilledAndResumedIsTheUninterruptedRun) {
  const fs::path whole = run("whole");
  for (const char* stage : {"pretrain/step-5", "grpo/step-6"}) {
    const std::string name = std::string("killed_") + (stage[0] == 'p' ? "pretrain" : "grpo");
    kill_and_resume(arguments(name), folder.path() / name, stage);
    expect_same_bits(whole, folder.path() / name);
  }
}

TEST_F(RunTest, KeptRolloutsOfARunThatWasKilledHaveTheSameBytesAndTheTrackerGetsEveryStep) {
  const auto options = [&](const std::string& name) {
    const std::string seen = (folder.path() / (name + "_seen")).string();
    return std::vector<std::string>{"stage.grpo.keep_rollouts=true",
                                    concat("tracker.command=['/bin/sh', '-c', 'cat >> ", seen, "']")};
  };
  ASSERT_EQ(run_hone(arguments("whole", options("whole"))).code, 0);
  kill_and_resume(arguments("killed", options("killed")), folder.path() / "killed", "grpo/step-6");
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path() / "whole" / "rollouts")) {
    const fs::path other = folder.path() / "killed" / "rollouts" / entry.path().filename();
    EXPECT_EQ(read_beginning(entry.path(), size_t{1} << 24), read_beginning(other, size_t{1} << 24)) << other;
    read_jsonl(entry.path(), [&](const Json& row, int64_t) {
      EXPECT_EQ(row.at("completion_ids").as_array().size(), row.at("logp").as_array().size());
      EXPECT_EQ(concat("step-", row.at("step").as_int(), ".jsonl.gz"), entry.path().filename().string());
    });
    ++files;
  }
  EXPECT_EQ(files, 10);
  for (const std::string name : {"whole", "killed"}) {
    std::set<int64_t> steps;
    read_jsonl(folder.path() / (name + "_seen"), [&](const Json& row, int64_t) {
      if (row.find("loss")) steps.insert(row.at("step").as_int());
    });
    EXPECT_EQ(steps.size(), 22u) << name;
  }
}

TEST_F(RunTest, KilledAtRandomAgainAndAgainEndsInTheSameBits) {
  const fs::path whole = run("whole"), folder_of = folder.path() / "often";
  Rng rng(17);
  int kills = 0;
  for (int attempt = 0; attempt < 200; ++attempt) {
    const bool begun = fs::exists(folder_of / "run.json");
    if (!begun) fs::remove_all(folder_of);
    Process process(begun ? std::vector<std::string>{"run", "--resume", folder_of.string()} : arguments("often"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + rng.below(60 + 4 * static_cast<uint64_t>(attempt))));
    process.signal(SIGKILL);
    const int code = process.wait().code;
    if (code == 0) break;
    ASSERT_EQ(code, 128 + SIGKILL);
    ++kills;
  }
  EXPECT_GT(kills, 1);
  expect_same_bits(whole, folder_of);
}

TEST_F(RunTest, TerminatedSavesAndSaysHowToGoOn) {
  const fs::path whole = run("whole");
  const Finished stopped = end_at_checkpoint(arguments("stopped"), folder.path() / "stopped", "grpo/step-3", SIGTERM);
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(stopped.err.find("hone run --resume"), std::string::npos) << stopped.err;
  ASSERT_EQ(run_hone({"run", "--resume", (folder.path() / "stopped").string()}).code, 0);
  expect_same_bits(whole, folder.path() / "stopped");
}

TEST_F(RunTest, ATornCheckpointIsRefusedByNameAndTheOneBeforeUsed) {
  const fs::path whole = run("whole"), torn = run("torn");
  fs::remove_all(torn / "checkpoints" / "grpo" / "step-10");
  fs::resize_file(torn / "checkpoints" / "grpo" / "step-9" / "model.safetensors", 100);
  Json state = parse_json(read_file(torn / "run.json"), "run.json");
  state.set("stages_done", 2);
  JsonArray stages = state.at("stages").as_array();
  stages.resize(2);
  state.set("stages", stages);
  std::ofstream(torn / "run.json") << state.dump();
  const Finished resumed = run_hone({"run", "--resume", torn.string()});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("step-9"), std::string::npos) << resumed.err;
  expect_same_bits(whole, torn);
}

TEST_F(RunTest, LeavesWhatItPromises) {
  const fs::path at = run("a");
  for (const char* name : {"recipe.toml", "run.json", "metrics.jsonl", "samples.jsonl", "report.json", "report.md",
                           "report.html", "grpo-loss.svg", "grpo-reward.svg", "accuracy.svg",
                           "tokenizer/tokenizer.json", "checkpoints/grpo/step-10/config.json"})
    EXPECT_TRUE(fs::exists(at / name)) << name;
  EXPECT_FALSE(fs::is_empty(at / "tensorboard"));
  std::vector<int64_t> evaluated;  // before the first stage, every eval_steps of it, after each stage
  read_jsonl(at / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (row.find("eval/arithmetic/accuracy")) evaluated.push_back(row.at("step").as_int());
  });
  EXPECT_EQ(evaluated, (std::vector<int64_t>{0, 5, 10, 12, 22}));
  const Finished again = run_hone({"run", (at / "recipe.toml").string(), "name=b"});
  EXPECT_EQ(again.code, 0) << again.err;
  expect_same_bits(at, folder.path() / "b");
}

// Runs whose reward is a Python function. It raises from its tenth call on while a file "away" exists, and fails on a
// completion with a 7.
class PluginRunTest : public RunTest {
 protected:
  void SetUp() override {
    if (std::system("python3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
    std::ofstream(folder.path() / "rewards.py") << R"(
import os
away = os.path.join(os.path.dirname(__file__), "away")
calls = 0

def judge(completions, **columns):
    global calls
    calls += 1
    if calls > 9 and os.path.exists(away):
        raise RuntimeError("the service is away")
    return [len(set(c)) / 10 for c in completions]

def odd(completions, **columns):
    return [float("nan") if "7" in c else None if "8" in c else len(set(c)) / 10 for c in completions]
)";
  }
  std::vector<std::string> plugin_arguments(const std::string& name, const std::string& function,
                                            const std::string& rate) const {
    const std::string file = (folder.path() / "rewards.py").string();
    return arguments(
        name, {"stage.grpo.reward={kind = 'python', workers = 1, path = '" + file + "', function = '" + function + "'}",
               "stage.grpo.max_reward_failure_rate=" + rate});
  }
};

TEST_F(PluginRunTest, StoppedByAFailingPluginAndResumedIsTheRunWhosePluginNeverFailed) {
  const Finished whole = run_hone(plugin_arguments("whole", "judge", "0.0"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::ofstream(folder.path() / "away") << "";
  const Finished stopped = run_hone(plugin_arguments("stopped", "judge", "0.1"));
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(stopped.err.find("RuntimeError: the service is away (line 10 of rewards.py)"), std::string::npos)
      << stopped.err;
  EXPECT_NE(stopped.err.find("max_reward_failure_rate is 0.1"), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find("stopped after step 3 of stage grpo, everything is saved; resume with: hone run --resume"),
            std::string::npos)
      << stopped.err;
  EXPECT_TRUE(fs::exists(folder.path() / "stopped" / "checkpoints" / "grpo" / "step-3" / "manifest.json"));
  fs::remove(folder.path() / "away");
  const Finished resumed = run_hone({"run", "--resume", (folder.path() / "stopped").string()});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_bits(folder.path() / "whole", folder.path() / "stopped");
}

// The batch has been sampled and scored, and its advantages cannot be computed: the third kind of error that ends a
// step.
TEST_F(PluginRunTest, AnErrorAfterTheRewardsSavesTheStepsBeforeItAndTheResumedRunIsTheSame) {
  std::ofstream(folder.path() / "rewards.py", std::ios::app) << R"(
def below(completions, **columns):
    global calls
    calls += 1
    return [-1.0 if calls > 9 and os.path.exists(away) else len(set(c)) / 10 for c in completions]
)";
  const auto maxrl = [&](const std::string& name) {
    std::vector<std::string> out = plugin_arguments(name, "below", "0.0");
    out.insert(out.end(), {"stage.2.name=grpo", "stage.2.objective=maxrl"});
    return out;
  };
  const Finished whole = run_hone(maxrl("whole"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::ofstream(folder.path() / "away") << "";
  const Finished stopped = run_hone(maxrl("stopped"));
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(
      stopped.err.find("maxrl needs rewards of 0 or more; stopped after step 3 of stage grpo, everything is saved"),
      std::string::npos)
      << stopped.err;
  fs::remove(folder.path() / "away");
  const Finished resumed =
      run_hone({"run", "--resume", (folder.path() / "stopped").string()});  // the batch is sampled and scored again
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_bits(folder.path() / "whole", folder.path() / "stopped");
}

TEST_F(PluginRunTest, FailuresBelowTheRateAreCountedAndTheRunGoesOn) {
  const Finished done = run_hone(plugin_arguments("odd", "odd", "1.0"));
  ASSERT_EQ(done.code, 0) << done.err;
  double failed = 0, skipped = 0;
  int64_t steps = 0;
  read_jsonl(folder.path() / "odd" / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (!row.find("completions/mean_length")) return;
    ++steps;
    if (const Json* count = row.find("rewards/python/failed")) failed += count->as_double();
    if (const Json* count = row.find("rewards/skipped")) skipped += count->as_double();
    EXPECT_TRUE(row.find("loss")->is_number());
  });
  EXPECT_EQ(steps, 10);
  EXPECT_GT(failed, 0);
  EXPECT_GT(skipped, 0);
  const std::string shown = "could not be scored: its score is nan";
  const size_t first = done.err.find(shown);
  ASSERT_NE(first, std::string::npos) << done.err;
  EXPECT_EQ(done.err.find(shown, first + 1), std::string::npos);
}

}  // namespace
}  // namespace hone::test
