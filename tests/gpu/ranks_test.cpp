// `hone run` on several ranks of GPUs: the bytes of one rank for every kind of stage, on one GPU that the ranks share
// and on two; also after a kill and at another number of ranks. tests/e2e/ranks_test.cpp is the same on a CPU.
#include <cstdlib>

#include "core/device/device_peers.h"
#include "tests/e2e/ranks_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

int count_gpus() {
  const DevicePeers* peers = peers_of(DeviceKind::cuda);
  return peers ? peers->count() : 0;
}

// The environment in which a run sees the first `count` of this process's GPUs.
std::vector<std::string> with_gpus(int count) {
  std::string visible;
  const char* all = std::getenv("CUDA_VISIBLE_DEVICES");
  size_t at = 0;
  for (int i = 0; i < count; ++i) {
    std::string name = std::to_string(i);
    if (all && *all) {
      const std::string_view text(all);
      const size_t comma = std::min(text.find(',', at), text.size());
      name = text.substr(at, comma - at);
      at = std::min(comma + 1, text.size());
    }
    visible += concat(i == 0 ? "" : ",", name);
  }
  return {"CUDA_VISIBLE_DEVICES=" + visible};
}

// Sizes at which Hopper's bodies run, and of which every layer is divided between all ranks.
std::vector<std::string> sized_model(const std::vector<std::string>& more) {
  std::vector<std::string> out{"model.hidden_size=128", "model.intermediate_size=320", "model.num_attention_heads=2"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::vector<std::string> with_moments(const char* moments) {
  std::vector<std::string> out;
  for (const char* stage : {"pretrain", "sft", "preference", "reward_model", "grpo", "ahead", "critic"})
    out.push_back(concat("stage.", stage, ".moments=", moments));
  return out;
}

class RanksOnGpu : public RanksRun {
 protected:
  RanksOnGpu() : RanksRun("cuda") {}
  void SetUp() override {
    if (count_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
  // One rank on the first GPU, then for each number of GPUs and ranks the same run.
  void expect_equal_runs(const std::vector<std::string>& keys, std::initializer_list<std::pair<int, int>> gpus_ranks) {
    const std::vector<std::string> all = sized_model(keys);
    const fs::path one = run_on(1, all, "one", with_gpus(1));
    ASSERT_GT(files_of(one).size(), 12u);
    for (const auto& [gpus, ranks] : gpus_ranks) {
      const std::string name = concat(ranks, "-ranks-on-", gpus);
      SCOPED_TRACE(name);
      const fs::path many = run_on(ranks, all, name, with_gpus(gpus));
      expect_same_run(one, many);
      EXPECT_EQ(eval_results(many), eval_results(one));
      const std::string log = read_file(many / "hone.log");
      EXPECT_NE(log.find(concat(ranks, " ranks on cuda:0, cuda:", gpus == 1 ? 0 : 1)), std::string::npos) << log;
      EXPECT_TRUE(fs::exists(many / "checkpoints/critic/step-3/trainer" /
                             concat("trainer-0000", ranks, "-of-0000", ranks, ".safetensors")));
    }
  }
};

TEST_F(RanksOnGpu, RanksThatShareAGpuHaveTheBytesOfOne) { expect_equal_runs({}, {{1, 2}, {1, 4}}); }
TEST_F(RanksOnGpu, AlsoWithBf16Moments) { expect_equal_runs(with_moments("bf16"), {{1, 2}, {1, 4}}); }
TEST_F(RanksOnGpu, AlsoWithF32WeightsAndRecomputation) {
  std::vector<std::string> keys = with_moments("f32");
  keys.insert(keys.end(), {"dtype=f32", "stage.pretrain.recompute=full", "stage.grpo.recompute=selective"});
  expect_equal_runs(keys, {{1, 3}});
}
TEST_F(RanksOnGpu, AlsoWithAdapters) {
  expect_equal_runs({"model.lora.r=8", "model.lora.target_modules=all-linear", "model.lora.merge=true",
                     "model.lora.lora_dropout=0.1"},
                    {{1, 2}, {1, 3}});
}
TEST_F(RanksOnGpu, AlsoWithZero3) { expect_equal_runs({"parallel.zero=3"}, {{1, 2}, {1, 4}}); }
TEST_F(RanksOnGpu, AlsoWithZero3AndRecomputation) {
  std::vector<std::string> keys = with_moments("bf16");
  keys.insert(keys.end(), {"parallel.zero=3", "stage.pretrain.recompute=full", "stage.grpo.recompute=selective"});
  expect_equal_runs(keys, {{1, 3}});
}
TEST_F(RanksOnGpu, AlsoWithZero3AndAdapters) {
  expect_equal_runs({"parallel.zero=3", "model.lora.r=8", "model.lora.target_modules=all-linear"}, {{1, 2}});
}
TEST_F(RanksOnGpu, AlsoWithRanksWithoutWork) {
  std::vector<std::string> keys{"parallel.micro_batch_multiple=1", "stage.pretrain.batch_size=3",
                                "stage.sft.batch_size=1", "stage.preference.batch_size=1"};
  for (const char* stage : {"pretrain", "sft", "preference", "grpo", "ahead", "critic"})
    keys.push_back(concat("stage.", stage, ".micro_batch_tokens=64"));
  expect_equal_runs(keys, {{1, 4}});
}

TEST_F(RanksOnGpu, TwoGpusHaveTheBytesOfOne) {
  if (count_gpus() < 2) GTEST_SKIP() << "fewer than two GPUs";
  expect_equal_runs({}, {{2, 2}, {2, 4}});
}
TEST_F(RanksOnGpu, TwoGpusHaveTheBytesOfOneWithBf16Moments) {
  if (count_gpus() < 2) GTEST_SKIP() << "fewer than two GPUs";
  expect_equal_runs(with_moments("bf16"), {{2, 2}, {2, 4}});
}
TEST_F(RanksOnGpu, TwoGpusHaveTheBytesOfOneWithZero3) {
  if (count_gpus() < 2) GTEST_SKIP() << "fewer than two GPUs";
  expect_equal_runs({"parallel.zero=3"}, {{2, 2}, {2, 4}});
}

TEST_F(RanksOnGpu, KilledOnTwoRanksResumedOnThreeAndStoppedAndResumedOnOneIsTheUninterruptedRun) {
  const std::vector<std::string> keys = sized_model({"parallel.micro_batch_multiple=3"}), gpu = with_gpus(1);
  const fs::path whole = run_on(1, keys, "whole", gpu), run = folder.path() / "killed";
  std::vector<std::string> two = keys;
  two.push_back("parallel.ranks=2");
  EXPECT_EQ(end_at_checkpoint(arguments("killed", two), run, "pretrain/step-2", SIGKILL, gpu).code, 128 + SIGKILL);
  const Finished stopped =
      end_at_checkpoint({"run", "--resume", run.string(), "parallel.ranks=3"}, run, "grpo/step-1", SIGTERM, gpu);
  if (stopped.code != 0) {  // the signal may come after the last step
    EXPECT_NE(stopped.err.find("everything is saved; resume with: hone run --resume"), std::string::npos)
        << stopped.err;
    const Finished resumed = run_hone({"run", "--resume", run.string(), "parallel.ranks=1"}, gpu);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
  }
  EXPECT_EQ(files_of(whole), files_of(run));
  expect_same_checkpoints(whole, run, files_of(whole));
  for (const char* name : {"pretrain/step-4", "pretrain/step-6", "grpo/step-4", "critic/step-3"})
    expect_same_state(whole / "checkpoints" / name, run / "checkpoints" / name);
  EXPECT_EQ(rows_of(whole), rows_of(run));
}

}  // namespace
}  // namespace hone::test
