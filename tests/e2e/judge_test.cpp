// Runs whose reward is a judge: `hone serve` judges by the rubrics of rows, and a run that is killed and resumed has
// the bits of one that was not, although its judge never answers the same twice.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/e2e/whole_run.h"
#include "tests/rewards/judge/judge_server.h"
#include "tests/rollout/byte_model.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// A stage on rows with rubrics; the judge's keys follow.
std::string recipe(const std::string& keys) {
  return tiny_recipe("tiny", 1, R"(
[[stage]]
kind = "rl"
objective = "grpo"
files = ["FOLDER/rows.jsonl"]
prompts_per_step = 3
num_generations = 4
save_total_limit = 0
sampling = { max_tokens = 8 }
)" + keys);
}

void write_rows(const fs::path& folder) {
  std::ofstream out(folder / "rows.jsonl");
  for (int i = 0; i < 6; ++i)
    out << Json(JsonObject{
                    {"prompt", concat(i, "+", i, "=")},
                    {"answer", std::to_string(2 * i)},
                    {"rubric", JsonArray{concat("says ", 2 * i),
                                         JsonObject{{"criterion", "is short"}, {"weight", 2}, {"name", "short"}}}}})
               .dump()
        << "\n";
}

// The server's model has random weights: its answer is the likelier one of a and b.
TEST(JudgeRun, HoneServeJudgesByTheRubricsOfRows) {
  const TemporaryFolder folder;
  TinyModel().save(folder.path() / "judge");
  const Process serving({"serve", "--model", (folder.path() / "judge").string(), "--port", "0"});
  write_rows(folder.path());
  std::ofstream(folder.path() / "recipe.toml") << in_folder(recipe(concat(R"(steps = 2
[stage.reward]
kind = "judge"
base_url = "http://127.0.0.1:)",
                                                                          serving.port(), R"(/v1"
model = "judge"
mode = "rubric"
rubric_column = "rubric"
prompt = "{{ prompt }} {{ response }}. {{ criterion }}?"
pattern = "^[ab]"
answers = { a = 1, b = 0 }
max_tokens = 1
extra_body = { logit_bias = { 97 = 100, 98 = 100 } }
)")),
                                                            folder.path());
  const Finished done =
      run_hone({"run", (folder.path() / "recipe.toml").string(), "runs=" + folder.path().string(), "name=run"});
  ASSERT_EQ(done.code, 0) << done.err;
  int64_t steps = 0;
  read_jsonl(folder.path() / "run/metrics.jsonl", [&](const Json& row, int64_t) {
    if (!row.find("reward")) return;
    ++steps;
    EXPECT_EQ(row.find("rewards/judge/failed"), nullptr);
    EXPECT_NE(row.find("rewards/short/mean"), nullptr) << row.dump();
    EXPECT_EQ(row.at("sampling/sampling_logp_difference/max").as_double(), 0);
  });
  EXPECT_EQ(steps, 2);
  std::set<std::string> answers;
  read_jsonl(folder.path() / "run/judge/rank-0.jsonl",
             [&](const Json& row, int64_t) { answers.insert(row.at("text").as_string()); });
  for (const std::string& answer : answers) EXPECT_TRUE(answer == "a" || answer == "b") << answer;
  EXPECT_FALSE(answers.empty());
}

// Adjacent rows of one problem are a group.
TEST(JudgeRun, HoneRewardComparesTheRowsOfAProblem) {
  const JudgeServer server([](const std::string& question, const Json&) {
    const size_t a = between(question, "<response_A>\n", "\n</response_A>").size();
    const size_t b = between(question, "<response_B>\n", "\n</response_B>").size();
    return judge_response(a == b ? "[[C]]" : a > b ? "[[A]]" : "[[B]]");
  });
  std::string rows;
  for (const char* completion : {"a", "bbb", "cc"})
    rows += Json(JsonObject{{"prompt", "p"}, {"completion", completion}, {"answer", ""}}).dump() + "\n";
  rows += R"({"prompt": "other", "completion": "alone"})"
          "\n";
  const Finished done = run_hone(
      {"reward", "--reward", "{kind = 'judge', mode = 'pairwise', " + server.keys() + "}", "--in", "-", "--json"}, {},
      rows);
  ASSERT_EQ(done.code, 0) << done.err;
  std::vector<Json> scores;
  std::istringstream lines(done.out);
  for (std::string line; std::getline(lines, line);) scores.push_back(parse_json(line, "output").at("score"));
  EXPECT_EQ(scores, (std::vector<Json>{0.0, 1.0, 0.5, nullptr}));
}

// The judge prefers the longer of two completions: a completion's reward is the share of comparisons that it wins.
TEST(JudgeRun, OnlineDpoMakesPairsByAPairwiseJudge) {
  const TemporaryFolder folder;
  const JudgeServer server([](const std::string& question, const Json&) {
    const size_t a = between(question, "<response_A>\n", "\n</response_A>").size();
    const size_t b = between(question, "<response_B>\n", "\n</response_B>").size();
    return judge_response(a == b ? "[[C]]" : a > b ? "[[A]]" : "[[B]]");
  });
  write_rows(folder.path());
  std::string text = recipe(
      concat("steps = 2\nkeep_rollouts = true\nreward = {kind = 'judge', mode = 'pairwise', ", server.keys(), "}\n"));
  text.replace(text.find("kind = \"rl\"\nobjective = \"grpo\""), 30, "kind = \"online_dpo\"");
  std::ofstream(folder.path() / "recipe.toml") << in_folder(text, folder.path());
  const Finished done =
      run_hone({"run", (folder.path() / "recipe.toml").string(), "runs=" + folder.path().string(), "name=run"});
  ASSERT_EQ(done.code, 0) << done.err;
  std::vector<double> margins;
  read_jsonl(folder.path() / "run/metrics.jsonl", [&](const Json& row, int64_t) {
    if (const Json* margin = row.find("objective/scores_margin")) margins.push_back(margin->as_double());
  });
  ASSERT_FALSE(margins.empty());
  for (const double margin : margins) {
    EXPECT_GT(margin, 0);
    EXPECT_LE(margin, 1);
  }
}

class JudgeResume : public WholeRun {
 protected:
  JudgeResume() : WholeRun(recipe("steps = 6\nsave_steps = 2\n")) { write_rows(folder.path()); }
  std::string reward(const std::string& more = "") const {
    return "stage.grpo.reward={kind = 'judge', prompt = '{{ prompt }} {{ response }}', " + server.keys() + more + "}";
  }
  std::atomic<int> calls = 0;
  JudgeServer server{[this](const std::string&, const Json&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return judge_response(concat("[[", ++calls, "]]"));
  }};
};

TEST_F(JudgeResume, KilledAndResumedItHasTheAnswersThatItHad) {
  const fs::path run = folder.path() / "killed";
  // Killed in the middle of a step, whose answers are asked for again by the resumed run.
  EXPECT_EQ(
      end_at_checkpoint(arguments("killed", {reward()}), run, "grpo/step-2", SIGKILL, {}, std::chrono::milliseconds(40))
          .code,
      128 + SIGKILL);
  const Finished resumed = run_hone({"run", "--resume", run.string()});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  std::set<std::string> keys;
  int64_t lines = 0;
  read_jsonl(run / "judge/rank-0.jsonl", [&](const Json& row, int64_t) {
    keys.insert(row.at("key").as_string());
    ++lines;
  });
  EXPECT_EQ(static_cast<int64_t>(keys.size()), lines);  // no question was asked twice

  // Another run with these answers is the uninterrupted one.
  fs::copy_file(run / "judge/rank-0.jsonl", folder.path() / "answers.jsonl");
  const int asked = calls;
  const Finished whole =
      run_hone(arguments("whole", {reward(", cache = '" + (folder.path() / "answers.jsonl").string() + "'")}));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(calls, asked);
  expect_same_rows(run / "metrics.jsonl", folder.path() / "whole/metrics.jsonl");
  expect_same_checkpoints(run, folder.path() / "whole",
                          {"grpo/step-6/model.safetensors", "grpo/step-6/trainer/trainer.safetensors"});
}

TEST_F(JudgeResume, ASpentBudgetStopsTheRunWhichGoesOnWithALargerOne) {
  const Finished stopped = run_hone(arguments("budget", {reward(", max_calls = 14")}));
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(stopped.err.find("budget of 14 calls (max_calls) is spent"), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find("completions could not be scored"), std::string::npos) << stopped.err;
  EXPECT_EQ(calls, 14);
  const fs::path run = folder.path() / "budget";
  const Finished again = run_hone({"run", "--resume", run.string()});
  EXPECT_EQ(again.code, 1) << again.err;
  EXPECT_EQ(calls, 14);
  const Finished resumed = run_hone({"run", "--resume", run.string(), "stage.grpo.reward.max_calls=0"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_GT(calls, 14);
}

TEST(JudgeRun, ADryRunFindsATemplateWithoutTheCompletion) {
  const TemporaryFolder folder;
  write_rows(folder.path());
  std::ofstream(folder.path() / "recipe.toml") << in_folder(
      recipe(
          "steps = 2\nreward = {kind = 'judge', base_url = 'http://127.0.0.1:1', model = 'm', prompt = 'Rate it.'}\n"),
      folder.path());
  const Finished done = run_hone({"run", "--dry-run", (folder.path() / "recipe.toml").string()});
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.err.find("does not write {{ completion }}"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace hone::test
