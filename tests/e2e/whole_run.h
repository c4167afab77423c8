#pragma once
// Complete runs of the program: comparing their results, ending them by a signal at a checkpoint, and resuming them.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "tests/support/process.h"
#include "tests/support/recipe_text.h"
#include "tests/support/support.h"

namespace hone::test {

// Rows of a log without values that depend on a clock or on the process's history.
inline std::vector<std::string> timeless_rows(const std::filesystem::path& path) {
  std::vector<std::string> out;
  read_jsonl(path, [&](const Json& row, int64_t) {
    Json kept = JsonObject{};
    for (const auto& [name, value] : row.as_object())
      if (name.find("time") == std::string::npos && name.find("second") == std::string::npos && name != "mfu" &&
          !name.starts_with("memory/"))
        kept.set(name, value);
    out.push_back(kept.dump());
  });
  return out;
}

inline void expect_same_rows(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::vector<std::string> one = timeless_rows(a), two = timeless_rows(b);
  EXPECT_EQ(one.size(), two.size()) << a;
  for (size_t i = 0; i < std::min(one.size(), two.size()); ++i) ASSERT_EQ(one[i], two[i]) << a << " row " << i;
}

// Expects equal bytes in both runs' checkpoints/NAME.
inline void expect_same_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b,
                                    const std::vector<std::string>& names) {
  for (const std::string& name : names)
    EXPECT_TRUE(read_file(a / "checkpoints" / name) == read_file(b / "checkpoints" / name)) << name;
}

// Starts a run and ends it by a signal when checkpoints/NAME `after` is complete.
inline Finished end_at_checkpoint(const std::vector<std::string>& arguments, const std::filesystem::path& run,
                                  const std::string& name, int signal, const std::vector<std::string>& environment = {},
                                  std::chrono::milliseconds after = {}) {
  Process process(arguments, environment);
  const std::filesystem::path manifest = run / "checkpoints" / name / "manifest.json";
  for (int i = 0; i < 30000 && !std::filesystem::exists(manifest); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(std::filesystem::exists(manifest)) << manifest;
  std::this_thread::sleep_for(after);
  process.signal(signal);
  return process.wait();
}

// The same by SIGKILL; then the run is resumed to its end.
inline void kill_and_resume(const std::vector<std::string>& arguments, const std::filesystem::path& run,
                            const std::string& name, const std::vector<std::string>& environment = {}) {
  EXPECT_EQ(end_at_checkpoint(arguments, run, name, SIGKILL, environment).code, 128 + SIGKILL);
  const Finished resumed = run_hone({"run", "--resume", run.string()}, environment);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
}

// The start of a recipe: a model with milliseconds per step, and the tokenizer of its sums; then `rest`, which begins
// with a table.
inline std::string tiny_recipe(const std::string& name, int layers, const std::string& rest,
                               const std::string& more_of_model = "") {
  return concat("name = \"", name, R"("
seed = 3
[model]
hidden_size = 32
intermediate_size = 64
num_attention_heads = 2
max_position_embeddings = 64
num_hidden_layers = )",
                layers, "\n", more_of_model, R"(
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
vocab_size = 270
)",
                rest);
}

// tiny_recipe() with one stage that learns sums by GRPO, with further `keys`.
inline std::string tiny_rl_recipe(const std::string& keys) {
  return tiny_recipe("tiny", 1,
                     "\n[[stage]]\nkind = \"rl\"\nobjective = \"grpo\"\n"
                     "generator = { kind = \"arithmetic\", digits = 1, heldout = 20 }" +
                         keys);
}

// Runs of a recipe that the test writes, in a temporary folder, which the recipe calls FOLDER.
class WholeRun : public ::testing::Test {
 protected:
  explicit WholeRun(const std::string& recipe) { std::ofstream(file()) << in_folder(recipe, folder.path()); }
  std::filesystem::path file() const { return folder.path() / "recipe.toml"; }
  std::vector<std::string> arguments(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> out = {"run", file().string(), "runs=" + folder.path().string(), "name=" + name};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::filesystem::path run(const std::string& name, const std::vector<std::string>& environment = {}) const {
    const Finished done = run_hone(arguments(name), environment);
    EXPECT_EQ(done.code, 0) << done.err;
    return folder.path() / name;
  }
  TemporaryFolder folder;
};

}  // namespace hone::test
