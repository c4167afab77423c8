// A run folder and its processes: one at a time, after any signal that ended the previous one, and only with the recipe
// that started the run.
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::string recipe = tiny_recipe("recovery", 1, R"(
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
packing = "documents"
max_length = 32
batch_size = 8
steps = 4000
save_steps = 5
)");

class RecoveryTest : public WholeRun {
 protected:
  RecoveryTest() : WholeRun(recipe) {}
  // A running run that has a checkpoint.
  std::unique_ptr<Process> begun(const std::vector<std::string>& launcher = {}) const {
    auto process = std::make_unique<Process>(arguments("run"), std::vector<std::string>{}, "", launcher);
    const fs::path manifest = at() / "checkpoints/pretrain/step-5/manifest.json";
    for (int i = 0; i < 30000 && !fs::exists(manifest); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(fs::exists(manifest));
    return process;
  }
  void begin_and_stop() const {
    const auto process = begun();
    process->signal(SIGTERM);
    EXPECT_EQ(process->wait().code, 1);
  }
  Finished resume(const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> all{"run", "--resume", at().string()};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return run_hone(all);
  }
  int64_t newest() const {
    int64_t most = 0;
    for (const auto& entry : fs::directory_iterator(at() / "checkpoints/pretrain"))
      if (const std::string name = entry.path().filename();
          name.starts_with("step-") && entry.path().extension().empty())
        most = std::max<int64_t>(most, std::stoll(name.substr(5)));
    return most;
  }
  fs::path at() const { return folder.path() / "run"; }
};

TEST_F(RecoveryTest, ASecondProcessIsRefusedAndTouchesNothing) {
  const auto process = begun();
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Finished second = resume();
    EXPECT_EQ(second.code, 1);
    EXPECT_NE(second.err.find("is writing this folder"), std::string::npos) << second.err;
    EXPECT_NE(second.err.find("process "), std::string::npos) << second.err;
  }
  EXPECT_FALSE(process->ends_within(0));
  process->signal(SIGKILL);
  EXPECT_EQ(process->wait().code, 128 + SIGKILL);
  const Finished third = resume({"stage.pretrain.steps=" + std::to_string(newest() + 2)});
  EXPECT_EQ(third.code, 0) << third.err;
}

// If two processes resume a run at the same time, one of them does it, and the log is that of one.
TEST_F(RecoveryTest, OneOfTwoConcurrentResumesContinues) {
  begin_and_stop();
  const std::string steps = "stage.pretrain.steps=" + std::to_string(newest() + 20);
  const std::vector<std::string> arguments{"run", "--resume", at().string(), steps};
  Process first(arguments), second(arguments);
  const Finished a = first.wait(), b = second.wait();
  EXPECT_EQ(std::min(a.code, b.code), 0) << a.err << b.err;
  const Finished& loser = a.code == 0 ? b : a;
  if (loser.code != 0) {
    EXPECT_NE(loser.err.find("is writing this folder"), std::string::npos) << loser.err;
  }
  int64_t before = 0;
  read_jsonl(at() / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (!row.find("loss")) return;
    EXPECT_EQ(row.at("step").as_int(), before + 1);
    before = row.at("step").as_int();
  });
}

// Killed after the last checkpoint of a stage no further save came to remove what was left.
TEST_F(RecoveryTest, WhatAKilledProcessLeftHalfWrittenOrHalfRemovedIsGone) {
  begin_and_stop();
  const fs::path stage = at() / "checkpoints/pretrain";
  const std::vector<fs::path> left{stage / "step-1.old.tmp/model.safetensors", stage / "step-9000.tmp/trainer/log.json",
                                   stage / "merged.tmp/config.json", at() / "run.json.tmp"};
  for (const fs::path& file : left) {
    fs::create_directories(file.parent_path());
    write_file_atomic(file, "half");
  }
  EXPECT_EQ(resume({concat("stage.pretrain.steps=", newest())}).code, 0);
  for (const auto& entry : fs::recursive_directory_iterator(at())) EXPECT_NE(entry.path().extension(), ".tmp") << entry;
  EXPECT_TRUE(fs::exists(at() / "report.md"));
}

TEST_F(RecoveryTest, AHangupSavesAndUnderNohupTheRunGoesOn) {
  const auto process = begun();
  process->signal(SIGHUP);
  const Finished stopped = process->wait();
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(stopped.err.find("everything is saved; resume with: hone run --resume"), std::string::npos) << stopped.err;
  fs::remove_all(at());

  const auto kept = begun({"nohup"});
  kept->signal(SIGHUP);
  EXPECT_FALSE(kept->ends_within(0.5));
  kept->signal(SIGTERM);
  EXPECT_EQ(kept->wait().code, 1);
}

TEST_F(RecoveryTest, AnEditedRecipeOrStateIsRefusedByName) {
  begin_and_stop();
  const std::string recipe_file = (at() / "recipe.toml").string(), text = read_file(recipe_file);
  const size_t place = text.find("hidden_size = 32");
  ASSERT_NE(place, std::string::npos);
  write_file_atomic(recipe_file, text.substr(0, place) + "hidden_size = 64" + text.substr(place + 16));
  const Finished wider = resume();
  EXPECT_EQ(wider.code, 1);
  EXPECT_NE(wider.err.find("model.hidden_size is 64, but the run began with 32"), std::string::npos) << wider.err;
  write_file_atomic(recipe_file, text);

  const std::string state_file = (at() / "run.json").string();
  Json state = parse_json(read_file(state_file), state_file);
  const int64_t done = state.at("stages_done").as_int();
  state.set("stages_done", 99);
  write_file_atomic(state_file, state.dump());
  const Finished far = resume();
  EXPECT_EQ(far.code, 1);
  EXPECT_NE(far.err.find("run.json: stages_done is 99, the recipe has 2 stages"), std::string::npos) << far.err;
  state.set("stages_done", done);
  write_file_atomic(state_file, state.dump());

  const Finished longer = resume({"stage.pretrain.steps=" + std::to_string(newest() + 2)});
  EXPECT_EQ(longer.code, 0) << longer.err;
  EXPECT_NE(longer.err.find("the run continues with stage.pretrain.steps"), std::string::npos) << longer.err;
}

}  // namespace
}  // namespace hone::test
