// hone collect and hone pairs: wrong arguments, keys and files are named.
#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

class CollectCommandTest : public CommandCase {
 protected:
  std::string rows(const std::string& text = "{\"prompt\": \"a\", \"answer\": \"b\"}\n") const {
    return write("rows.jsonl", text);
  }
  std::string tasks(const std::string& more = "reward = { kind = 'exact' }\n") const {
    return write("tasks.toml", "files = ['" + rows() + "']\nsampling = { max_tokens = 4 }\n" + more);
  }
  std::string out() const { return (folder.path() / "out").string(); }
};

TEST_F(CollectCommandTest, WrongArgumentsAndKeysAreNamed) {
  const std::string model = model_folder(), file = tasks();
  const std::vector<std::string> start = {"collect", file, "--model", model, "--out", out()};
  const auto expect = [&](const std::vector<std::string>& more, int code, const std::vector<std::string>& words) {
    std::vector<std::string> all = start;
    all.insert(all.end(), more.begin(), more.end());
    SCOPED_TRACE(more.empty() ? "" : more.back());
    expect_error(all, code, words);
  };
  expect_error({"collect", file, "--out", out()}, 2, {"--model is missing"});
  expect_error({"collect", file, "--base-url", "http://127.0.0.1:9/v1", "--out", out()}, 2, {"--model is missing"});
  expect_error({"collect", file, "--model", model}, 2, {"--out"});
  expect_error({"collect", "none.toml", "--model", model, "--out", out()}, 1, {"none.toml: cannot open"});
  expect_error({"collect", file, "--model", out() + "x", "--out", out()}, 1, {"there is no such model"});
  expect({"--shard", "3"}, 2, {"--shard is '3'; it must be K/N"});
  expect({"--shard", "3/3"}, 1, {"shard_index must be in [0, num_shards - 1] = [0, 2]"});
  expect({"--num-generations", "0"}, 1, {"num_generations must be in [1, 65536]"});
  expect({"--reward", "mth"}, 1, {"mth", "did you mean 'math'?"});
  expect({"min_pass_rate=0.7", "max_pass_rate=0.3"}, 1, {"max_pass_rate must be in [min_pass_rate, 1]"});
  expect({"sft=best"}, 1, {"sft must be accept or best_of_n"});
  expect({"sft_format=chat"}, 1, {"sft_format must be prompt_completion or messages"});
  expect({"threshhold=1"}, 1, {"threshhold", "threshold"});
  expect({"prompt={question}"}, 1, {"rows.jsonl:1", "question"});
  expect({"files=['-']"}, 1, {"standard input"});
  expect({"--base-url", "http://127.0.0.1:9/v1", "--worker", "http://127.0.0.1:8"}, 1, {"rollout.workers"});
  expect({"--base-url", "http://127.0.0.1:9/v1", "environment={kind = 'process', command = ['x']}"}, 1, {"environment", "--model"});
  expect({"--base-url", "http://127.0.0.1:9/v1", "chat_template=chatml"}, 1, {"chat_template"});
  expect_error({"pairs", tasks(""), "--model", model, "--out", "-"}, 1, {"pairs need a reward"});
}

TEST_F(CollectCommandTest, ADataFileNeedsNoToml) {
  const Finished done = run_hone({"collect", rows("{\"q\": \"a\", \"a\": \"b\"}\n"), "--model", model_folder(), "--out",
                                  out(), "--reward", "exact", "--num-generations", "3", "prompt={q}", "answer={a}",
                                  "sampling.max_tokens=4", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(parse_json(done.out, "summary").at("completions").as_int(), 3);
}

TEST_F(CollectCommandTest, AFolderOfOtherSettingsRowsOrModelIsKept) {
  const std::string model = model_folder(), file = tasks();
  const std::vector<std::string> start = {"collect", file, "--model", model, "--out", out()};
  ASSERT_EQ(run_hone(start).code, 0);
  const std::string before = read_file(out() + "/completions.jsonl");
  std::vector<std::string> warm = start;
  warm.emplace_back("sampling.temperature=0.5");
  expect_error(warm, 1, {"collect.json: sampling.temperature is 0.5, it was 1", "--out", "--allow-changes"});
  rows("{\"prompt\": \"a\", \"answer\": \"c\"}\n");
  expect_error(start, 1, {"rows.jsonl:1: the row has changed", "completions.jsonl"});
  rows();
  std::ofstream(model + "/model.safetensors", std::ios::app) << " ";
  expect_error(start, 1, {"model.digest is"});
  EXPECT_EQ(read_file(out() + "/completions.jsonl"), before);
  warm.emplace_back("--allow-changes");
  EXPECT_EQ(run_hone(warm).code, 0);
  EXPECT_EQ(read_file(out() + "/completions.jsonl"), before);
  std::ofstream(out() + "/completions.jsonl", std::ios::app) << "{\"row\": 1}\n";
  expect_error(warm, 1, {"completions.jsonl:2", "id"});
}

TEST_F(CollectCommandTest, ExportOnlyWritesWhatIsThere) {
  const std::string model = model_folder(), file = tasks();
  ASSERT_EQ(run_hone({"collect", file, "--model", model, "--out", out()}).code, 0);
  rows("{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": \"c\", \"answer\": \"d\"}\n");
  const Finished done = run_hone({"collect", file, "--model", model, "--out", out(), "--export-only", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const Json summary = parse_json(done.out, "summary");
  EXPECT_EQ(summary.at("rows").as_int(), 2);
  EXPECT_EQ(summary.at("rows_done").as_int(), 1);
  EXPECT_NE(done.err.find("1 of 2 rows are not done"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace hone::test
