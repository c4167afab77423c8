// A run under device.memory: it never uses more, the plan is close to what it uses, and the limit changes no result.
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

constexpr const char* recipe = R"(
seed = 1
device = "cpu"
[model]
hidden_size = 128
num_hidden_layers = 4
num_attention_heads = 4
max_position_embeddings = 64
[rollout]
kv_cache_tokens = 8192
max_num_seqs = 64
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
vocab_size = 270
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
max_length = 64
batch_size = 64
steps = 3
[[stage]]
kind = "rl"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 16
num_generations = 4
steps = 3
beta = 0.1
sampling = { max_tokens = 63, ignore_eos = true }   # the model's positions end each completion
reward = { kind = "number" }
)";

struct LimitedRun {
  LimitedRun(const std::filesystem::path& folder, const std::string& name, std::vector<std::string> overrides) {
    write_file_atomic(folder / "recipe.toml", recipe);
    overrides.insert(overrides.begin(),
                     {"run", (folder / "recipe.toml").string(), "runs=" + folder.string(), "name=" + name});
    done = run_hone(overrides);
    path = folder / name;
  }
  double last(const std::string& metric) const {
    double out = 0;
    read_jsonl(path / "metrics.jsonl", [&](const Json& row, int64_t) {
      if (const Json* value = row.find(metric)) out = value->as_double();
    });
    return out;
  }
  Finished done;
  std::filesystem::path path;
};

TEST(MemoryLimit, ThePlanIsCloseToWhatTheRunUses) {
  const TemporaryFolder folder;
  const LimitedRun run(folder.path(), "wide", {"device.memory=2 GB"});
  ASSERT_EQ(run.done.code, 0) << run.done.err;
  const double peak = run.last("memory/peak_gb"), plan = run.last("memory/planned_gb");
  EXPECT_GT(peak, 0);
  EXPECT_LE(peak, plan);
  EXPECT_LE(plan, 1.1 * peak);
  const Json state = parse_json(read_file(run.path / "run.json"), "run.json");
  const Json& memory = state.at("about").at("memory");
  EXPECT_EQ(memory.at("limit_bytes").as_int(), 2'000'000'000);
  EXPECT_NEAR(memory.at("planned_bytes").as_double() * 1e-9, plan, 1e-9);
  EXPECT_LE(memory.at("peak_bytes").as_int(), memory.at("planned_bytes").as_int());
  EXPECT_NE(read_file(run.path / "report.md").find("at the peak"), std::string::npos);
}

TEST(MemoryLimit, ARunStaysBelowItsLimitAndARepeatedRunChoosesTheSame) {
  const TemporaryFolder folder;
  const LimitedRun wide(folder.path(), "wide", {"device.memory=2 GB"});
  ASSERT_EQ(wide.done.code, 0) << wide.done.err;
  const double limit = 0.6 * wide.last("memory/planned_gb");
  const std::string memory = concat("device.memory=", static_cast<int64_t>(limit * 1e9));
  const LimitedRun small(folder.path(), "small", {memory}), again(folder.path(), "again", {memory});
  ASSERT_EQ(small.done.code, 0) << small.done.err;
  EXPECT_NE(small.done.err.find("recompute"), std::string::npos) << small.done.err;
  EXPECT_LE(small.last("memory/planned_gb"), limit);
  EXPECT_LE(small.last("memory/peak_gb"), small.last("memory/planned_gb"));
  const std::string resolved = read_file(small.path / "recipe.toml");
  EXPECT_NE(resolved.find("recompute = \"full\""), std::string::npos) << resolved;
  expect_same_rows(small.path / "metrics.jsonl", again.path / "metrics.jsonl");
}

TEST(MemoryLimit, WhatCannotFitIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  const LimitedRun run(folder.path(), "none", {"device.memory=1 MB"});
  EXPECT_NE(run.done.code, 0);
  EXPECT_NE(run.done.err.find("device.memory allows 1.0 MB"), std::string::npos) << run.done.err;
  EXPECT_FALSE(std::filesystem::exists(run.path));
}

}  // namespace
}  // namespace hone::test
