// Runs on several ranks: the bits of one rank for every stage, also after a kill and at another number of ranks; and
// what ends such a run.
#include <algorithm>
#include <cstdlib>

#include "core/base/stopwatch.h"
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::string pretrain = R"(
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
packing = "documents"
max_length = 32
batch_size = 7
steps = 6
save_steps = 2
save_total_limit = 0
micro_batch_tokens = 48
)";

// Odd sizes, several micro-batches with a short last one.
const std::string recipe = tiny_recipe("ranks", 2, pretrain + R"(
[[stage]]
kind = "sft"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompt = "{prompt}"
completion = "{answer}"
steps = 3
batch_size = 5
micro_batch_tokens = 48
eval_share = 0.1
eval_steps = 2
[[stage]]
kind = "preference"
files = ["FOLDER/pairs.jsonl"]
steps = 3
batch_size = 3
max_length = 32
micro_batch_tokens = 32
[[stage]]
kind = "rl"
objective = "grpo"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 3
num_generations = 3
steps = 4
save_steps = 1
save_total_limit = 0
beta = 0.05
num_mini_batches = 2
micro_batch_tokens = 48
keep_rollouts = true
sampling = { max_tokens = 6 }
reward = { kind = "length", limit = 6, target = 3 }
[[stage]]
kind = "rl"
objective = "ppo"
name = "ahead"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 2
num_generations = 2
steps = 3
max_staleness = 1
sampling = { max_tokens = 6 }
reward = { kind = "length", limit = 6, target = 3 }
)");

class RanksTest : public WholeRun {
 protected:
  RanksTest() : WholeRun(recipe) {
    std::ofstream pairs(folder.path() / "pairs.jsonl");
    for (int i = 0; i < 9; ++i)
      pairs << R"({"prompt": "1+)" << i << R"(=", "chosen": ")" << i + 1 << R"(", "rejected": "0"})" << '\n';
  }
  fs::path run_on(int ranks, const std::vector<std::string>& more = {}) const {
    const std::string name = concat("on-", ranks);
    std::vector<std::string> overrides = more;
    overrides.push_back(concat("parallel.ranks=", ranks));
    const Finished done = run_hone(arguments(name, overrides));
    EXPECT_EQ(done.code, 0) << done.err;
    return folder.path() / name;
  }
};

// The files of all checkpoints, without the log's lengths, which depend on times.
std::vector<std::string> files_of(const fs::path& run) {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(run / "checkpoints")) {
    const std::string name = entry.path().lexically_relative(run / "checkpoints");
    const std::string file = entry.path().filename();
    if (entry.is_regular_file() && file.ends_with(".safetensors")) out.push_back(name);
  }
  std::ranges::sort(out);
  return out;
}

// Rows of metrics without shares of times. They differ in how often a rank had to wait.
std::vector<std::string> rows_of(const fs::path& run) {
  std::vector<std::string> out;
  for (const std::string& text : timeless_rows(run / "metrics.jsonl")) {
    Json kept = JsonObject{};
    const Json row = parse_json(text, "row");
    for (const auto& [name, value] : row.as_object())
      if (!name.ends_with("idle_ratio") && !name.starts_with("queue/")) kept.set(name, value);
    out.push_back(kept.dump());
  }
  return out;
}

void expect_same_run(const fs::path& a, const fs::path& b) {
  EXPECT_EQ(files_of(a), files_of(b));
  expect_same_checkpoints(a, b, files_of(a));
  EXPECT_EQ(rows_of(a), rows_of(b));
  expect_same_rows(a / "samples.jsonl", b / "samples.jsonl");
}

TEST_F(RanksTest, TwoAndThreeRanksHaveTheBitsOfOne) {
  const fs::path one = run_on(1);
  EXPECT_GT(files_of(one).size(), 20u);
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    const fs::path many = run_on(ranks);
    expect_same_run(one, many);
    const std::string log = read_file(many / "hone.log");
    EXPECT_NE(log.find(concat(ranks, " ranks on cpu")), std::string::npos) << log;
    const Json report = parse_json(read_file(many / "report.json"), "report.json");
    EXPECT_EQ(report.at("stages").as_array().size(), 5u);
  }
}

TEST_F(RanksTest, AdaptersToo) {
  const std::vector<std::string> lora{"model.lora.r=4", "model.lora.target_modules=all-linear",
                                      "model.lora.merge=true"};
  const fs::path one = run_on(1, lora);
  const fs::path two = run_on(2, lora);
  expect_same_run(one, two);
}

TEST_F(RanksTest, KilledOnTwoResumedOnThreeStoppedAndResumedOnOneIsTheUninterruptedRun) {
  const fs::path whole = run_on(1), run = folder.path() / "killed";
  EXPECT_EQ(end_at_checkpoint(arguments("killed", {"parallel.ranks=2"}), run, "pretrain/step-2", SIGKILL).code,
            128 + SIGKILL);
  const Finished stopped =
      end_at_checkpoint({"run", "--resume", run.string(), "parallel.ranks=3"}, run, "grpo/step-1", SIGTERM);
  if (stopped.code != 0) {  // the signal may come after the last step
    EXPECT_NE(stopped.err.find("everything is saved; resume with: hone run --resume"), std::string::npos)
        << stopped.err;
    EXPECT_NE(stopped.err.find("hone: stopped after step "), std::string::npos) << stopped.err;
    const Finished resumed = run_hone({"run", "--resume", run.string(), "parallel.ranks=1"});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
  }
  EXPECT_EQ(files_of(run).size(), files_of(whole).size());
  expect_same_checkpoints(whole, run,
                          {"ahead/step-3/model.safetensors", "ahead/step-3/trainer/trainer.safetensors",
                           "grpo/step-4/model.safetensors", "dpo/step-3/model.safetensors"});
  EXPECT_EQ(rows_of(whole), rows_of(run));
}

TEST_F(RanksTest, MicroBatchMultipleIsPinned) {
  const fs::path one = run_on(2, {"stage.pretrain.steps=1"});
  EXPECT_NE(read_file(one / "recipe.toml").find("micro_batch_multiple = 1"), std::string::npos);
}

const std::string rewarded = tiny_recipe("rewarded", 1, R"(
[[stage]]
kind = "rl"
objective = "grpo"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 2
num_generations = 2
steps = 6
sampling = { max_tokens = 6 }
reward = { kind = "process", command = ["python3", "FOLDER/judge.py"], retries = 0, workers = 1 }
)");

// Scores four calls; then it does what the file "ending" says. It counts its processes.
constexpr const char* judge = R"(
import json, os, sys, time
here = os.path.dirname(__file__) + "/"
open(here + "started", "a").write("x")
calls = 0
for line in sys.stdin:
    request = json.loads(line)
    if "protocol" in request:
        print(json.dumps({"id": request["id"], "protocol": 1}), flush=True)
        continue
    calls += 1
    if calls > 4:
        ending = open(here + "ending").read() if os.path.exists(here + "ending") else ""
        if ending == "hang":
            time.sleep(60)
        if ending == "exit":
            sys.exit("the judge has gone")
    print(json.dumps({"id": request["id"], "scores": [len(c) % 5 for c in request["completions"]]}), flush=True)
)";

class RankFailuresTest : public WholeRun {
 protected:
  RankFailuresTest() : WholeRun(rewarded) { std::ofstream(folder.path() / "judge.py") << judge; }
  void SetUp() override {
    if (std::system("python3 -c 'import json' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  }
};

// The rank that scores is not the only one that must stop, and what it has done is not lost.
TEST_F(RankFailuresTest, ARewardThatFailsStopsAllRanksAndTheResumedRunIsTheSame) {
  const fs::path whole = run("whole");
  fs::remove(folder.path() / "started");
  std::ofstream(folder.path() / "ending") << "exit";
  const Finished stopped = run_hone(arguments("stopped", {"parallel.ranks=2"}));
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(stopped.err.find("completions could not be scored"), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find("stopped after step 2 of stage grpo, everything is saved"), std::string::npos)
      << stopped.err;
  fs::remove(folder.path() / "ending");
  const Finished resumed = run_hone({"run", "--resume", (folder.path() / "stopped").string(), "parallel.ranks=3"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_checkpoints(whole, folder.path() / "stopped",
                          {"grpo/step-6/model.safetensors", "grpo/step-6/trainer/trainer.safetensors"});
  expect_same_rows(whole / "metrics.jsonl", folder.path() / "stopped" / "metrics.jsonl");
}

TEST_F(RankFailuresTest, RewardsRunOnceForAllRanks) {
  const auto starts = [&](const std::string& name, int ranks) {
    fs::remove(folder.path() / "started");
    const Finished done = run_hone(arguments(name, {concat("parallel.ranks=", ranks)}));
    EXPECT_EQ(done.code, 0) << done.err;
    return read_file(folder.path() / "started");
  };
  EXPECT_EQ(starts("one", 1), starts("three", 3));
}

TEST_F(RankFailuresTest, ARankThatHangsIsNamedWithItsPhaseWithinTheTimeout) {
  std::ofstream(folder.path() / "ending") << "hang";
  Process process(arguments("hangs", {"parallel.ranks=2", "parallel.timeout=3"}));
  ASSERT_TRUE(soon([&] { return fs::exists(folder.path() / "started"); }, 60));
  const Stopwatch watch;
  const Finished ended = process.wait();
  EXPECT_LT(watch.seconds(), 3 + 5 + 5);  // with the steps before it
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("rank 0 (cpu) has made no progress for 3 s (parallel.timeout) at 'rollouts of step 3'; rank "
                           "1 (cpu) waits for it"),
            std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace hone::test
