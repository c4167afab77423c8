#pragma once
// Runs of `hone collect` in a temporary folder, with a small model of random weights and a task file.
#include <fstream>
#include <map>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "tests/e2e/whole_run.h"
#include "tests/rollout/byte_model.h"

namespace hone::test {

namespace fs = std::filesystem;

class CollectRun : public ::testing::Test {
 protected:
  static constexpr int num_rows = 12;
  CollectRun() {
    TinyModel().save(path("model"));
    std::ofstream rows(path("rows.jsonl"));
    for (int i = 0; i < num_rows; ++i)
      rows << Json(JsonObject{{"prompt", concat(i, "+", i, "=")}, {"answer", std::to_string(2 * i)}, {"level", i % 3}})
                  .dump()
           << "\n";
  }
  fs::path path(const std::string& name) const { return folder.path() / name; }
  // A task file. The reward is the share of ASCII bytes of a completion, which random completions differ in.
  std::string tasks(const std::string& more = "") const {
    const std::string file = path("tasks.toml").string();
    std::ofstream(file) << in_folder(R"(
files = ["FOLDER/rows.jsonl"]
num_generations = 4
sampling = { max_tokens = 24, seed = 5, stop = ["e", "t", "a", "1", "2", "3", "4", "5", "6", "7", "8", "9", "x", "Z"] }
reward = { kind = "length", unit = "bytes", target = 4, limit = 40 }
threshold = 0.5
)" + more,
                                     folder.path());
    return file;
  }
  std::vector<std::string> arguments(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"collect", tasks(), "--model", path("model").string(), "--out", path(out).string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished collect(const std::string& out, const std::vector<std::string>& more = {}) const {
    Finished done = run_hone(arguments(out, more));
    EXPECT_EQ(done.code, 0) << done.err;
    return done;
  }
  static std::vector<Json> rows_of(const fs::path& file) {
    std::vector<Json> out;
    read_jsonl(file, [&](const Json& row, int64_t) { out.push_back(row); });
    return out;
  }
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (const char* file : {"completions.jsonl", "sft.jsonl", "pairs.jsonl", "tasks.jsonl", "summary.json"})
      EXPECT_TRUE(read_file(path(a) / file) == read_file(path(b) / file)) << file;
  }
  // Starts the command and kills it when completions.jsonl has `lines` lines.
  void kill_at(const std::vector<std::string>& command, const fs::path& out, int64_t lines,
               int signal = SIGKILL) const {
    Process process(command);
    const fs::path file = out / "completions.jsonl";
    const auto count = [&] {
      std::ifstream in(file);
      return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
    };
    EXPECT_TRUE(soon([&] { return count() >= lines; }, 60)) << process.err();
    process.signal(signal);
    const Finished done = process.wait();
    EXPECT_EQ(done.code, signal == SIGKILL ? 128 + SIGKILL : 1) << done.err;
    EXPECT_FALSE(fs::exists(out / "sft.jsonl")) << "it was killed too late";
  }
  TemporaryFolder folder;
};

}  // namespace hone::test
