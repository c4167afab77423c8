// `hone collect` with a model: its files feed SFT, DPO and GRPO; killed and resumed, in shards and with workers it
// writes the same bytes; rewards that fail are no scores.
#include "tests/e2e/collect_run.h"
#include "tests/e2e/workers_run.h"

namespace hone::test {
namespace {

class CollectModel : public CollectRun {};

TEST_F(CollectModel, WritesRowsOfEachKind) {
  const Finished done =
      collect("out", {"--json", "keep_columns=['level']", "min_pass_rate=0.01", "max_pass_rate=0.99"});
  const Json summary = parse_json(done.out, "summary");
  EXPECT_EQ(summary.at("rows").as_int(), num_rows);
  EXPECT_EQ(summary.at("rows_done").as_int(), num_rows);
  EXPECT_EQ(summary.at("completions").as_int(), 4 * num_rows);
  EXPECT_EQ(summary.at("scored").as_int(), 4 * num_rows);
  EXPECT_GT(summary.at("tokens_per_second").as_double(), 0);
  EXPECT_GT(summary.at("rows_per_second").as_double(), 0);
  const Json kept = parse_json(read_file(path("out") / "summary.json"), "summary.json");
  EXPECT_EQ(kept.find("seconds"), nullptr) << "times are no part of a file that repeats";

  // Every figure is that of completions.jsonl.
  int64_t passed = 0, tokens = 0, index = 0;
  double reward = 0;
  std::map<std::string, double> pass_rates;
  std::map<std::string, std::vector<Json>> completions;
  for (const Json& row : rows_of(path("out") / "completions.jsonl")) {
    EXPECT_EQ(row.at("row").as_int(), index++);
    EXPECT_EQ(row.at("id").as_string(), concat(path("rows.jsonl").string(), ":", index));
    int64_t passed_here = 0;
    for (const Json& one : row.at("completions").as_array()) {
      passed_here += one.at("reward").as_double() >= 0.5;
      tokens += one.at("tokens").as_int();
      reward += one.at("reward").as_double();
    }
    passed += passed_here;
    pass_rates[row.at("prompt").as_string()] = static_cast<double>(passed_here) / 4;
    completions[row.at("id").as_string()] = row.at("completions").as_array();
  }
  EXPECT_EQ(summary.at("passed").as_int(), passed);
  EXPECT_EQ(summary.at("tokens").as_int(), tokens);
  EXPECT_DOUBLE_EQ(summary.at("mean_reward").as_double(), reward / (4 * num_rows));
  EXPECT_DOUBLE_EQ(summary.at("acceptance_rate").as_double(), static_cast<double>(passed) / (4 * num_rows));

  const std::vector<Json> sft = rows_of(path("out") / "sft.jsonl");
  ASSERT_FALSE(sft.empty());
  EXPECT_EQ(summary.at("sft_rows").as_int(), std::ssize(sft));
  for (const Json& row : sft) {
    EXPECT_GE(row.at("reward").as_double(), 0.5);
    EXPECT_TRUE(row.find("level"));
    const Json& from =
        completions.at(row.at("id").as_string()).at(static_cast<size_t>(row.at("completion_index").as_int()));
    EXPECT_EQ(from.at("text"), row.at("completion"));
    EXPECT_EQ(from.at("finish_reason").as_string(), "stop");
  }
  const std::vector<Json> pairs = rows_of(path("out") / "pairs.jsonl");
  ASSERT_FALSE(pairs.empty());
  for (const Json& row : pairs) EXPECT_GT(row.at("chosen_reward").as_double(), row.at("rejected_reward").as_double());
  const std::vector<Json> tasks = rows_of(path("out") / "tasks.jsonl");
  int64_t wanted = 0;
  for (const auto& [prompt, rate] : pass_rates) wanted += rate > 0 && rate < 1;
  EXPECT_EQ(std::ssize(tasks), wanted);
  ASSERT_GT(wanted, 0);
  for (const Json& row : tasks) {
    EXPECT_DOUBLE_EQ(row.at("pass_rate").as_double(), pass_rates.at(row.at("prompt").as_string()));
    EXPECT_TRUE(row.find("level") && row.find("answer"));
  }
}

// Each file is the data of a stage as it is.
TEST_F(CollectModel, ItsFilesTrainSftDpoAndGrpo) {
  collect("out", {"--num-generations", "6"});
  const auto train = [&](const std::string& stage) {
    const fs::path file = path("recipe.toml");
    std::ofstream(file) << in_folder("seed = 3\n[model]\npath = \"FOLDER/model\"\n[[stage]]\nsteps = 2\n" + stage,
                                     folder.path());
    const Finished done = run_hone({"run", file.string(), "runs=" + folder.path().string(), "name=run"});
    EXPECT_EQ(done.code, 0) << stage << done.err;
    fs::remove_all(path("run"));
  };
  train("kind = 'sft'\nfiles = ['FOLDER/out/sft.jsonl']\nbatch_size = 4\n");
  train("kind = 'preference'\nobjective = 'dpo'\nfiles = ['FOLDER/out/pairs.jsonl']\nbatch_size = 2\n");
  train(
      "kind = 'rl'\nobjective = 'grpo'\nfiles = ['FOLDER/out/tasks.jsonl']\nprompts_per_step = 2\nnum_generations = 4\n"
      "sampling = { max_tokens = 8 }\nreward = { kind = 'length', unit = 'bytes', target = 4, limit = 40 }\n");
}

TEST_F(CollectModel, ConversationsTrainSftAndDpo) {
  collect("out", {"chat=chatml", "system=Be brief.", "threshold=0"});
  const Json row = rows_of(path("out") / "sft.jsonl").at(0);
  EXPECT_EQ(row.at("prompt").as_array().at(0).at("content").as_string(), "Be brief.");
  EXPECT_EQ(row.at("completion").as_array().at(0).at("role").as_string(), "assistant");
  for (const char* stage : {"kind = 'sft'\nfiles = ['FOLDER/out/sft.jsonl']\n",
                            "kind = 'preference'\nobjective = 'dpo'\nfiles = ['FOLDER/out/pairs.jsonl']\n"}) {
    std::ofstream(path("recipe.toml")) << in_folder(
        concat("[model]\npath = \"FOLDER/model\"\n[[stage]]\nsteps = 1\nbatch_size = 2\nchat = 'chatml'\n", stage),
        folder.path());
    const Finished done = run_hone({"run", path("recipe.toml").string(), "runs=" + folder.path().string(), "name=run"});
    EXPECT_EQ(done.code, 0) << stage << done.err;
    fs::remove_all(path("run"));
  }
}

const std::vector<std::string> kSlow = {"rollout.max_num_seqs=2", "sampling.max_tokens=200", "sampling.stop=[]"};

TEST_F(CollectModel, KilledAndResumedItWritesTheSameBytes) {
  collect("whole", kSlow);
  for (const int64_t lines : {1, 5}) {
    const std::string name = concat("killed_", lines);
    kill_at(arguments(name, kSlow), path(name), lines);
    const std::string before = read_file(path(name) / "completions.jsonl");
    std::ofstream(path(name) / "completions.jsonl", std::ios::app) << "{\"row\": 3, \"id\": \"torn";
    const Finished resumed = collect(name, kSlow);
    EXPECT_NE(resumed.err.find("rows are done"), std::string::npos) << resumed.err;
    expect_same_files("whole", name);
  }
}

TEST_F(CollectModel, AnInterruptKeepsTheRowsAndSaysHowToGoOn) {
  collect("whole", kSlow);
  kill_at(arguments("stopped", kSlow), path("stopped"), 2, SIGTERM);
  collect("stopped", kSlow);
  expect_same_files("whole", "stopped");
}

// Rows that are done are not sampled again; selections may change.
TEST_F(CollectModel, AFinishedFolderGetsOtherSelectionsWithoutSampling) {
  collect("out");
  const std::string completions = read_file(path("out") / "completions.jsonl");
  const Json summary = parse_json(collect("out", {"--json", "threshold=0.9", "sft=best_of_n"}).out, "summary");
  EXPECT_EQ(summary.at("new_rows").as_int(), 0);
  EXPECT_EQ(read_file(path("out") / "completions.jsonl"), completions);
  collect("other", {"threshold=0.9", "sft=best_of_n"});
  expect_same_files("out", "other");
  // More rows of the same file are added to it.
  collect("few", {"--limit", "5"});
  EXPECT_EQ(rows_of(path("few") / "completions.jsonl").size(), 5u);
  collect("few", {"threshold=0.9", "sft=best_of_n"});
  expect_same_files("few", "other");
}

TEST_F(CollectModel, TheFilesOfShardsInOrderAreTheWhole) {
  collect("whole");
  std::map<std::string, std::string> joined;
  for (int shard = 0; shard < 3; ++shard) {
    const std::string name = concat("shard_", shard);
    collect(name, {"--shard", concat(shard, "/3")});
    for (const char* file : {"completions.jsonl", "sft.jsonl", "pairs.jsonl", "tasks.jsonl"})
      joined[file] += read_file(path(name) / file);
  }
  for (const auto& [file, text] : joined) EXPECT_TRUE(text == read_file(path("whole") / file)) << file;
}

TEST_F(CollectModel, WorkersWriteTheSameBytes) {
  collect("whole");
  const WorkerProcess one, two;
  const Finished done =
      collect("remote", {"--worker", one.url(), "--worker", two.url(), "rollout.worker_key_file=" + key_file()});
  EXPECT_EQ(count(done.err, "has joined"), 2u) << done.err;
  expect_same_files("whole", "remote");
}

TEST_F(CollectModel, PairsIsTheSameCommand) {
  collect("out", {"pairs_per_prompt=2"});
  const std::vector<std::string> command = {"pairs", tasks(), "--model", path("model").string(), "pairs_per_prompt=2",
                                            "--out"};
  const auto with_out = [&](const std::string& out) {
    std::vector<std::string> all = command;
    all.push_back(out);
    return all;
  };
  const Finished to_file = run_hone(with_out(path("pairs.jsonl").string()));
  ASSERT_EQ(to_file.code, 0) << to_file.err;
  EXPECT_TRUE(read_file(path("pairs.jsonl")) == read_file(path("out") / "pairs.jsonl"));
  EXPECT_FALSE(fs::exists(path("pairs.jsonl.collect"))) << "the rows in progress";
  EXPECT_NE(to_file.err.find("prompts, mean reward"), std::string::npos) << to_file.err;
  const Finished to_output = run_hone(with_out("-"));
  ASSERT_EQ(to_output.code, 0) << to_output.err;
  EXPECT_EQ(to_output.out, read_file(path("out") / "pairs.jsonl"));
  // Killed, it goes on.
  std::vector<std::string> slow = with_out(path("killed.jsonl").string());
  slow.insert(slow.end(), kSlow.begin(), kSlow.end());
  kill_at(slow, path("killed.jsonl.collect"), 3);
  const Finished resumed = run_hone(slow);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("rows are done"), std::string::npos) << resumed.err;
}

// The rows of a data file that is no conversation format of hone's keep their form in the task file.
TEST_F(CollectModel, TaskRowsAreTheRowsOfTheDataFile) {
  const Json row = JsonObject{{"conversations", JsonArray{JsonObject{{"from", "human"}, {"value", "Hi"}},
                                                          JsonObject{{"from", "gpt"}, {"value", "Ho"}}}},
                              {"topic", "talk"}};
  std::ofstream(path("rows.jsonl")) << row.dump() << "\n";
  collect("out", {"answer=", "chat=chatml"});
  const Json task = rows_of(path("out") / "tasks.jsonl").at(0);
  EXPECT_EQ(task.at("conversations"), row.at("conversations"));
  EXPECT_EQ(task.at("topic"), row.at("topic"));
  EXPECT_EQ(task.find("messages"), nullptr);
  EXPECT_TRUE(task.find("pass_rate"));
}

TEST_F(CollectModel, WithoutARewardAllCompletionsAreSftRows) {
  collect("out", {"reward={}", "sft_format=messages"});
  const auto sft = rows_of(path("out") / "sft.jsonl");
  ASSERT_FALSE(sft.empty());
  EXPECT_EQ(sft[0].find("reward"), nullptr);
  EXPECT_EQ(sft[0].at("messages").as_array().size(), 2u);
  EXPECT_FALSE(fs::exists(path("out") / "pairs.jsonl"));
}

// Fails for every completion with an odd number of bytes.
constexpr const char* kJudge = R"(
def reward(completions, **kwargs):
    if any(len(c.encode()) % 2 for c in completions):
        raise ValueError("odd")
    return [float(len(c) % 3 == 0) for c in completions]
)";

TEST_F(CollectModel, RewardsThatFailAreCountedAndAreNoScores) {
  if (std::system("python3 -c 'import json' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  std::ofstream(path("judge.py")) << kJudge;
  const std::vector<std::string> more = {
      "--json", concat("reward={kind = 'python', path = '", path("judge.py").string(), "', function = 'reward'}"),
      "num_generations=1"};
  const Finished done = collect("out", more);
  const Json summary = parse_json(done.out, "summary");
  int64_t failed = 0;
  for (const Json& row : rows_of(path("out") / "completions.jsonl"))
    for (const Json& one : row.at("completions").as_array()) {
      failed += one.find("without_score") && one.at("without_score") == Json("reward");
      EXPECT_EQ(one.find("reward") == nullptr, one.find("without_score") != nullptr);
    }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, num_rows);
  EXPECT_EQ(summary.at("failed_rewards").as_int(), failed);
  EXPECT_EQ(summary.at("scored").as_int(), num_rows - failed);
  EXPECT_EQ(summary.at("tasks_without_score").as_int(), failed);
  EXPECT_NE(done.err.find("could not be scored"), std::string::npos) << done.err;
  // Their rows are tried again.
  EXPECT_EQ(parse_json(collect("out", more).out, "summary").at("new_rows").as_int(), failed);
}

// No score at all is an error; the completions are kept, and the same command tries them again.
TEST_F(CollectModel, NoScoreAtAllIsAnErrorAndLosesNoCompletion) {
  if (std::system("python3 -c 'import json' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  const auto judge = [&](const char* body) {
    std::ofstream(path("judge.py")) << "def reward(completions, **rows):\n    " << body << "\n";
  };
  const std::string reward =
      concat("reward={kind = 'python', path = '", path("judge.py").string(), "', function = 'reward'}");
  judge("raise ValueError('broken')");
  const Finished failed = run_hone(arguments("out", {reward}));
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.err.find("no completion has a score"), std::string::npos) << failed.err;
  EXPECT_EQ(rows_of(path("out") / "completions.jsonl").size(), static_cast<size_t>(num_rows));
  std::vector<std::string> pairs = {"pairs",   tasks(),
                                    "--model", path("model").string(),
                                    reward,    "max_reward_failure_rate=1",
                                    "--out",   path("pairs.jsonl").string()};
  EXPECT_EQ(run_hone(pairs).code, 1);
  EXPECT_TRUE(fs::exists(path("pairs.jsonl.collect"))) << "the completions";
  judge("return [float(len(one)) for one in completions]");
  collect("out", {reward});
  EXPECT_EQ(run_hone(pairs).code, 0);
  EXPECT_FALSE(fs::exists(path("pairs.jsonl.collect")));
}

// A folder without rows takes other settings; one with rows does not.
TEST_F(CollectModel, OnlyRowsHoldTheSettings) {
  const Finished failed = run_hone(arguments("out", {"chat=template"}));
  ASSERT_NE(failed.code, 0);
  collect("out");
  const Finished other = run_hone(arguments("out", {"num_generations=3"}));
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("num_generations"), std::string::npos) << other.err;
  const Finished none = run_hone(arguments("nowhere", {"--export-only"}));
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("no such folder"), std::string::npos) << none.err;
  EXPECT_FALSE(fs::exists(path("nowhere")));
}

// Answers each turn with its number; the episode ends after the second.
constexpr const char* kGame = R"(
import json, sys
turn = 0
for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"]}
    if "protocol" in request:
        answer["protocol"] = 1
    elif request["method"] == "reset":
        turn = 0
        answer["observation"] = " Begin!"
    else:
        turn += 1
        answer.update(messages=f"turn {turn}", done=turn == 2, reward=float(len(request["completion"]) % 2))
    print(json.dumps(answer), flush=True)
)";

TEST_F(CollectModel, EpisodesOfAnEnvironmentAreConversations) {
  if (std::system("python3 -c 'import json' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  std::ofstream(path("game.py")) << kGame;
  const std::vector<std::string> more = {
      "reward={}",
      "chat=chatml",
      "threshold=0",
      "accept_truncated=true",
      "sampling.max_tokens=40",
      concat("environment={kind = 'process', command = ['python3', '", path("game.py").string(), "'], max_turns = 3}")};
  collect("out", more);
  size_t long_ones = 0;
  for (const Json& row : rows_of(path("out") / "sft.jsonl")) {
    EXPECT_TRUE(row.at("prompt").as_array().back().at("content").as_string().ends_with(" Begin!")) << row.dump();
    const JsonArray& turns = row.at("completion").as_array();
    EXPECT_EQ(turns.front().at("role").as_string(), "assistant");
    if (turns.size() != 3) continue;
    ++long_ones;
    EXPECT_EQ(turns[1].at("content").as_string(), "turn 1");
    EXPECT_EQ(turns[2].at("role").as_string(), "assistant");
  }
  EXPECT_GT(long_ones, 0u);
  collect("again", more);
  expect_same_files("out", "again");
}

}  // namespace
}  // namespace hone::test
