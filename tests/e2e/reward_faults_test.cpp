// Runs whose reward is a program that dies, repeatedly or for good. No sampled completion is lost, and no score is
// invented.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::string recipe = tiny_rl_recipe(R"(
prompts_per_step = 3
num_generations = 4
steps = 6
save_steps = 2
save_total_limit = 0
sampling = { max_tokens = 8 }
reward = { kind = "process", command = ["python3", "FOLDER/judge.py"], retries = 1, workers = 2 }
)");

// Scores a completion by its length. With a file "fragile" next to it, the first call for each prompt kills it in the
// middle of an answer. With a file "gone" it exits at once.
constexpr const char* judge = R"(
import hashlib, json, os, signal, sys
here = os.path.dirname(__file__) + "/"
for line in sys.stdin:
    if os.path.exists(here + "gone"):
        sys.exit("the judge has gone")
    request = json.loads(line)
    if "protocol" in request:
        print(json.dumps({"id": request["id"], "protocol": 1}), flush=True)
        continue
    if os.path.exists(here + "fragile"):
        mark = here + "died-" + hashlib.sha256(request["prompts"][0].encode()).hexdigest()
        if not os.path.exists(mark):
            open(mark, "w").close()
            sys.stdout.write('{"id": 1, "scores": [')
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps({"id": request["id"], "scores": [len(c) % 5 for c in request["completions"]]}), flush=True)
)";

class RewardFaultsTest : public WholeRun {
 protected:
  RewardFaultsTest() : WholeRun(recipe) { std::ofstream(folder.path() / "judge.py") << judge; }
  void SetUp() override {
    if (std::system("python3 -c 'import json' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  }
  void expect_same_bits(const fs::path& a, const fs::path& b) const {
    for (const char* file : {"metrics.jsonl", "samples.jsonl"}) expect_same_rows(a / file, b / file);
    expect_same_checkpoints(a, b, {"grpo/step-6/model.safetensors", "grpo/step-6/trainer/trainer.safetensors"});
  }
};

TEST_F(RewardFaultsTest, OneThatIsKilledByItsCallsIsAskedAgainWithTheSameBits) {
  const fs::path steady = run("steady");
  std::ofstream(folder.path() / "fragile").close();
  const fs::path fragile = run("fragile_run");
  int64_t died = 0;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    died += entry.path().filename().string().starts_with("died-");
  EXPECT_GT(died, 5);
  expect_same_bits(steady, fragile);
}

TEST_F(RewardFaultsTest, OneThatIsGoneStopsTheRunWhichGoesOnOnceItIsBack) {
  const fs::path steady = run("steady");
  Process process(arguments("stopped"));
  ASSERT_TRUE(soon([&] { return fs::exists(folder.path() / "stopped/checkpoints/grpo/step-2/manifest.json"); }, 60));
  std::ofstream(folder.path() / "gone").close();
  ASSERT_TRUE(process.ends_within(60)) << process.err();
  const Finished stopped = process.wait();
  ASSERT_EQ(stopped.code, 1) << stopped.err;
  EXPECT_NE(stopped.err.find("completions could not be scored"), std::string::npos) << stopped.err;
  fs::remove(folder.path() / "gone");
  const Finished resumed = run_hone({"run", "--resume", (folder.path() / "stopped").string()});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_bits(steady, folder.path() / "stopped");
}

}  // namespace
}  // namespace hone::test
