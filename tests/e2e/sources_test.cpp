// Several sources in a stage: shares, metrics, samples and rewards by source. A killed and resumed run has the bits of
// an uninterrupted one, with any number of threads.
#include <map>

#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// SFT on two sources, one of them a generator; then GRPO on two with rewards of their own.
const std::string recipe = tiny_recipe("sources", 1, R"(
[[stage]]
kind = "sft"
steps = 120
batch_size = 6
max_length = 48
save_steps = 6
save_total_limit = 0
eval_share = 0.2
eval_steps = 60
[[stage.source]]
name = "sums"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
weight = 2
[[stage.source]]
name = "echo"
files = "FOLDER/echo.jsonl"
prompt = "echo {word}:"
completion = " {word}"
when = { column = "keep", equals = "true" }
weight = 1

[[stage]]
kind = "rl"
objective = "grpo"
steps = 12
prompts_per_step = 4
num_generations = 2
learning_rate = 1e-3
save_steps = 2
save_total_limit = 0
log_samples = -1
keep_rollouts = true
sampling = { max_tokens = 6 }
reward = { kind = "number" }
[[stage.source]]
name = "sums"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
limit = 30
weight = 3
[[stage.source]]
name = "echo"
files = "FOLDER/echo.jsonl"
prompt = "echo {word}:"
answer = "{word}"
chat = "plain"
reward = { kind = "length", limit = 6, target = 3 }
weight = 1

[rollout]
kv_block_size = 16
kv_cache_tokens = 4096
max_sequences = 16
)");

std::vector<Json> rows_of(const fs::path& path) {
  std::vector<Json> out;
  read_jsonl(path, [&](const Json& row, int64_t) { out.push_back(row); });
  return out;
}

class SourcesRun : public WholeRun {
 protected:
  SourcesRun() : WholeRun(recipe) { write_rows('w'); }
  void write_rows(char first_letter) const {
    std::ofstream rows(folder.path() / "echo.jsonl");
    for (int i = 0; i < 20; ++i)
      rows << R"({"word": ")" << first_letter << i << R"(", "keep": )" << (i % 2 == 0 ? "true" : "false") << "}\n";
  }
};

TEST_F(SourcesRun, MetricsAndSamplesNameTheSourceAndItsReward) {
  const fs::path whole = run("whole");
  int sft_rows = 0, rl_rows = 0, held_rows = 0;
  for (const Json& row : rows_of(whole / "metrics.jsonl")) {
    if (row.find("loss/sums")) {
      ++sft_rows;
      EXPECT_TRUE(row.find("loss/echo"));
      EXPECT_GT(row.at("epoch/echo", "row").as_double(), 0);
    }
    if (row.find("eval_loss/sums")) {
      ++held_rows;
      EXPECT_TRUE(row.find("eval_loss/echo"));
    }
    if (row.find("reward/sums")) {
      ++rl_rows;
      EXPECT_EQ(row.at("prompts/sums", "row").as_double(), 3);
      EXPECT_EQ(row.at("prompts/echo", "row").as_double(), 1);
      EXPECT_NEAR(row.at("reward", "row").as_double(),
                  0.75 * row.at("reward/sums", "row").as_double() + 0.25 * row.at("reward/echo", "row").as_double(),
                  1e-9);
    }
  }
  EXPECT_EQ(sft_rows, 120);
  EXPECT_EQ(held_rows, 2);
  EXPECT_EQ(rl_rows, 12);
  std::map<std::string, int> samples;
  for (const Json& row : rows_of(whole / "samples.jsonl")) {
    const std::string source = row.at("source", "row").as_string();
    ++samples[source];
    EXPECT_EQ(row.at("task", "row").as_string().find(source + ":"), 0u);
    EXPECT_TRUE(row.at("rewards", "row").find(source == "sums" ? "number" : "length")) << row.dump();
    const bool plain = row.at("prompt", "row").as_string().ends_with("\n");
    EXPECT_EQ(plain, source == "echo") << row.dump();  // chat = "plain" ends the prompt's line
  }
  EXPECT_EQ(samples, (std::map<std::string, int>{{"sums", 72}, {"echo", 24}}));
}

TEST_F(SourcesRun, AKilledRunResumesWithTheSameBits) {
  const fs::path whole = run("whole");
  const auto same = [&](const fs::path& other) {
    expect_same_rows(whole / "metrics.jsonl", other / "metrics.jsonl");
    expect_same_rows(whole / "samples.jsonl", other / "samples.jsonl");
    expect_same_checkpoints(whole, other, {"sft/step-120/model.safetensors", "grpo/step-12/model.safetensors"});
  };
  const fs::path sft = folder.path() / "sft", rl = folder.path() / "rl";
  kill_and_resume(arguments("sft"), sft, "sft/step-12");
  same(sft);
  kill_and_resume(arguments("rl"), rl, "grpo/step-2");
  same(rl);
  const Finished threads = run_hone(arguments("threads", {"threads=1"}));
  EXPECT_EQ(threads.code, 0) << threads.err;
  same(folder.path() / "threads");
}

// A checkpoint then has groups that are ready, and finds their tasks by id.
TEST_F(SourcesRun, ARunWithBatchesAheadResumesWithTheSameBits) {
  const std::vector<std::string> ahead = {"stage.grpo.max_staleness=1"};
  const Finished done = run_hone(arguments("whole", ahead));
  ASSERT_EQ(done.code, 0) << done.err;
  kill_and_resume(arguments("killed", ahead), folder.path() / "killed", "grpo/step-4");
  expect_same_rows(folder.path() / "whole" / "samples.jsonl", folder.path() / "killed" / "samples.jsonl");
  expect_same_checkpoints(folder.path() / "whole", folder.path() / "killed", {"grpo/step-12/model.safetensors"});
}

TEST_F(SourcesRun, AResumedRunRefusesOtherSources) {
  const fs::path stopped = folder.path() / "stopped";
  end_at_checkpoint(arguments("stopped"), stopped, "sft/step-6", SIGTERM);
  const auto refusal = [&](const std::string& override) {
    const Finished done = run_hone({"run", "--resume", stopped.string(), override});
    EXPECT_NE(done.code, 0) << override;
    return done.err;
  };
  EXPECT_NE(refusal("stage.sft.source.echo.weight=5").find("the stage's checkpoints depend on it"), std::string::npos);
  EXPECT_NE(refusal("stage.sft.source.echo.prompt=x").find("the stage's checkpoints depend on it"), std::string::npos);
}

// As many rows as before.
TEST_F(SourcesRun, AResumedRunRefusesChangedRowsOfItsStage) {
  const fs::path stopped = folder.path() / "stopped";
  end_at_checkpoint(arguments("stopped"), stopped, "sft/step-6", SIGTERM);
  write_rows('v');
  const Finished refused = run_hone({"run", "--resume", stopped.string()});
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_NE(refused.err.find("stage.sft.source.1.files: the contents of " + (folder.path() / "echo.jsonl").string()),
            std::string::npos)
      << refused.err;
  write_rows('w');
  const Finished restored = run_hone({"run", "--resume", stopped.string(), "stage.grpo.steps=2"});
  EXPECT_EQ(restored.code, 0) << restored.err;
}

// Stages that learn from preferences. One source of the reward model has margins, the other has none.
const std::string preferences = tiny_recipe("preferences", 1, R"(
[[stage]]
kind = "preference"
steps = 4
batch_size = 4
eval_share = 0.25
eval_steps = 4
[[stage.source]]
name = "a"
files = "FOLDER/pairs.jsonl"
when = { column = "set", equals = "a" }
[[stage.source]]
name = "b"
files = "FOLDER/pairs.jsonl"
when = { column = "set", equals = "b" }

[[stage]]
kind = "unpaired_preference"
steps = 2
batch_size = 4
[[stage.source]]
name = "a"
files = "FOLDER/pairs.jsonl"
limit = 4
[[stage.source]]
name = "b"
files = "FOLDER/pairs.jsonl"
offset = 4

[[stage]]
kind = "reward_model"
steps = 2
batch_size = 4
[[stage.source]]
name = "a"
files = "FOLDER/pairs.jsonl"
limit = 4
[[stage.source]]
name = "b"
files = "FOLDER/pairs.jsonl"
offset = 4
margin = "{gap}"
)");

class PreferenceSources : public WholeRun {
 protected:
  PreferenceSources() : WholeRun(preferences) {
    std::ofstream rows(folder.path() / "pairs.jsonl");
    for (int i = 0; i < 16; ++i)
      rows << concat(R"({"prompt": "p)", i, R"(", "chosen": " 1", "rejected": " 2", "gap": 0.5, "set": ")",
                     i % 2 == 0 ? "a" : "b", "\"}\n");
  }
};

TEST_F(PreferenceSources, EveryStageOfPreferencesTakesSources) {
  const fs::path whole = run("whole");
  int pairs = 0, held = 0, unpaired = 0, scores = 0;
  for (const Json& row : rows_of(whole / "metrics.jsonl")) {
    pairs += row.find("rewards/accuracies/a") && row.find("rewards/margins/b") && row.find("rewards/chosen/a") &&
             row.find("loss/b") && row.find("entropy") && row.find("mean_token_accuracy");
    held += row.find("eval_rewards/accuracies/a") && row.find("eval_rewards/accuracies/b");
    scores += row.find("accuracy/a") && row.find("margin/b") && row.find("loss/b");
    unpaired += row.find("kl") && row.find("epoch/b") && row.find("loss/b") && row.find("rewards/margins");
  }
  EXPECT_EQ(pairs, 4);
  EXPECT_GE(held, 1);
  EXPECT_EQ(unpaired, 2);
  EXPECT_EQ(scores, 2);
}

}  // namespace
}  // namespace hone::test
