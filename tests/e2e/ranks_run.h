#pragma once
// Runs of one recipe with every kind of stage on several ranks, and what must be equal in two such runs.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/e2e/whole_run.h"
#include "tests/support/merged_state.h"

namespace hone::test {

inline const std::string ranks_pretrain = R"(
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
inline const std::string ranks_recipe = tiny_recipe("ranks", 2, ranks_pretrain + R"(
[[eval]]
task = "arithmetic"
limit = 5
samples = 2
[[eval]]
task = "FOLDER/choice.toml"
[[eval]]
task = "FOLDER/text.toml"
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
kind = "reward_model"
files = ["FOLDER/pairs.jsonl"]
steps = 2
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
micro_batch_tokens = 24
sampling = { max_tokens = 6 }
reward = { kind = "length", limit = 6, target = 3 }
[[stage]]
kind = "rl"
objective = "ppo"
name = "critic"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
critic = { trunk = "separate" }
prompts_per_step = 3
num_generations = 1
num_iterations = 2
steps = 3
save_steps = 2
micro_batch_tokens = 24
sampling = { max_tokens = 6 }
reward = { kind = "length", limit = 6, target = 3 }
)");

// A test with that recipe and its files, on a device: "cpu" or "cuda".
class RanksRun : public WholeRun {
 protected:
  explicit RanksRun(const std::string& device, const std::string& recipe = ranks_recipe)
      : WholeRun(recipe), device_(device) {
    std::ofstream pairs(folder.path() / "pairs.jsonl");
    for (int i = 0; i < 9; ++i)
      pairs << R"({"prompt": "1+)" << i << R"(=", "chosen": ")" << i + 1 << R"(", "rejected": "0"})" << '\n';
    const std::string files = concat("files = ['", (folder.path() / "sums.jsonl").string(), "']\n");
    std::ofstream(folder.path() / "choice.toml") << "kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'\n"
                                                 << files;
    std::ofstream(folder.path() / "text.toml") << "kind = 'perplexity'\ntext = '{q}1'\n" << files;
    std::ofstream sums(folder.path() / "sums.jsonl");
    for (int i = 0; i < 7; ++i) sums << R"({"q": "2+)" << i << R"(=", "choices": ["1", "23"], "gold": 1})" << '\n';
  }
  std::vector<std::string> arguments(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> out = WholeRun::arguments(name, {"device=" + device_});
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  // A run NAME with micro_batch_multiple = 2 unless `more` says otherwise.
  std::filesystem::path run_on(int ranks, const std::vector<std::string>& more = {}, const std::string& name = "",
                               const std::vector<std::string>& environment = {}) const {
    const std::string folder_name = name.empty() ? concat("on-", ranks) : name;
    std::vector<std::string> overrides{concat("parallel.ranks=", ranks), "parallel.micro_batch_multiple=2"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const Finished done = run_hone(arguments(folder_name, overrides), environment);
    EXPECT_EQ(done.code, 0) << done.err;
    return folder.path() / folder_name;
  }

 private:
  const std::string device_;
};

// The model files of all checkpoints.
inline std::vector<std::string> files_of(const std::filesystem::path& run) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run / "checkpoints")) {
    const std::string name = entry.path().lexically_relative(run / "checkpoints");
    const std::string file = entry.path().filename();
    if (entry.is_regular_file() && file.ends_with(".safetensors") && name.find("/trainer/") == std::string::npos)
      out.push_back(name);
  }
  std::ranges::sort(out);
  return out;
}

// The checkpoints, as STAGE/step-N.
inline std::vector<std::string> checkpoints_of(const std::filesystem::path& run) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run / "checkpoints"))
    if (entry.path().filename() == "trainer")
      out.push_back(entry.path().parent_path().lexically_relative(run / "checkpoints"));
  std::ranges::sort(out);
  return out;
}

// Rows of metrics without shares of times. They differ in how often a rank had to wait.
inline std::vector<std::string> rows_of(const std::filesystem::path& run) {
  std::vector<std::string> out;
  for (const std::string& text : timeless_rows(run / "metrics.jsonl")) {
    Json kept = JsonObject{};
    const Json row = parse_json(text, "row");
    for (const auto& [name, value] : row.as_object())
      if (!name.ends_with("idle_ratio") && !name.starts_with("queue/") && !name.starts_with("ranks/"))
        kept.set(name, value);
    out.push_back(kept.dump());
  }
  return out;
}

// What run.json says of the evaluations, without times.
inline std::vector<std::string> eval_results(const std::filesystem::path& run) {
  std::vector<std::string> out;
  const Json saved = parse_json(read_file(run / "run.json"), "run.json");
  const auto add = [&](const Json& results) {
    for (const Json& result : results.as_array("results")) {
      Json kept = result;
      kept.set("seconds", 0);
      out.push_back(kept.dump());
    }
  };
  add(saved.at("initial"));
  for (const Json& stage : saved.at("stages").as_array("stages")) add(stage.at("eval"));
  return out;
}

// Expects equal bytes of model files, of every optimizer tensor, and of metrics and samples; those of times excepted.
inline void expect_same_run(const std::filesystem::path& a, const std::filesystem::path& b) {
  EXPECT_EQ(files_of(a), files_of(b));
  expect_same_checkpoints(a, b, files_of(a));
  EXPECT_EQ(checkpoints_of(a), checkpoints_of(b));
  for (const std::string& name : checkpoints_of(a))
    expect_same_state(a / "checkpoints" / name, b / "checkpoints" / name);
  EXPECT_EQ(rows_of(a), rows_of(b));
  expect_same_rows(a / "samples.jsonl", b / "samples.jsonl");
}

}  // namespace hone::test
