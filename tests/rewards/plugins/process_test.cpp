// Processes as rewards, well-behaved and ill-behaved. The ill-behaved ones are shell scripts that count their requests
// from 0, the greeting.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "core/base/check.h"
#include "core/io/file.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr const char* greeting = "read -r line; echo '{\"id\": 0, \"protocol\": 1}'\n";

class PluginProcess : public ::testing::Test {
 protected:
  // Makes a reward whose processes run the script after the greeting. keys: more keys of its table.
  std::shared_ptr<const Reward> reward(const std::string& script, const std::string& keys = "retries = 0",
                                       bool greets = true) {
    const std::string path = (folder.path() / ("plugin" + std::to_string(++scripts) + ".sh")).string();
    std::ofstream(path) << "cd " << folder.path().string() << "\n" << (greets ? greeting : "") << script;
    return make_reward("{kind = 'process', command = ['sh', '" + path + "']" + (keys.empty() ? "" : ", " + keys) + "}");
  }
  static std::vector<RewardScore> score(const Reward& reward, const std::vector<std::string>& texts) {
    std::vector<Completion> completions;
    for (const std::string& text : texts) completions.push_back({.ids = {1}, .text = text, .finish_reason = "stop"});
    std::vector<RewardScore> scores(texts.size());
    reward.score_group({.id = "t", .prompt = "p", .messages = {}, .answer = "a", .columns = {}}, completions, scores);
    return scores;
  }
  // Returns the note of a completion that failed.
  static std::string failure(const Reward& reward, const std::string& text = "x") {
    const RewardScore out = score(reward, {text})[0];
    EXPECT_TRUE(out.failed) << out.score;
    return out.note;
  }
  size_t lines_of(const std::string& name) const {
    std::ifstream in(folder.path() / name);
    size_t count = 0;
    for (std::string line; std::getline(in, line);) ++count;
    return count;
  }
  std::vector<pid_t> pids_of(const std::string& name) const {
    std::ifstream in(folder.path() / name);
    std::vector<pid_t> out;
    for (pid_t pid = 0; in >> pid;) out.push_back(pid);
    return out;
  }
  static bool gone(pid_t pid) {
    // A killed process is a zombie until its new parent waits for it.
    for (int i = 0; i < 400; ++i) {
      std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
      std::string name, state;
      if (!(in >> name >> name >> state) || state == "Z" || state == "X") return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  TemporaryFolder folder;
  int scripts = 0;
};

TEST_F(PluginProcess, NumbersNullsNotesPartsAndErrorsAreRead) {
  const auto plugin = reward(R"(read -r line; echo "$line" > request
echo '{"id": 1, "scores": [0.5, null, {"score": 2, "note": "so", "parts": {"a": 1}}, {"error": "odd"}, {"score": null}, "good", 1e300, {"note": "x"}]}'
read -r line
)");
  const std::vector<RewardScore> scores = score(*plugin, {"a", "b", "c", "d", "e", "f", "g", "h"});
  EXPECT_EQ(scores[0].score, 0.5);
  EXPECT_TRUE(scores[1].skipped);
  EXPECT_EQ(scores[2].score, 2);
  EXPECT_EQ(scores[2].note, "so");
  EXPECT_EQ(scores[2].parts, (Metrics{{"a", 1}}));
  EXPECT_TRUE(scores[3].failed);
  EXPECT_EQ(scores[3].note, "odd");
  EXPECT_TRUE(scores[4].skipped);
  for (const size_t i : {5, 6, 7}) EXPECT_TRUE(scores[i].failed) << i;
  EXPECT_EQ(scores[6].note, "its score is 1e+300");
  const Json request = parse_json(read_file(folder.path() / "request"), "request");
  EXPECT_EQ(request.at("prompts"), Json(JsonArray(8, "p")));
  EXPECT_EQ(request.at("answers"), Json(JsonArray(8, "a")));
  EXPECT_EQ(request.at("completions").as_array()[7], Json("h"));
  EXPECT_EQ(request.at("completion_ids").as_array()[0], Json(JsonArray{1}));
}

TEST_F(PluginProcess, OneThatHangsIsKilledWithItsChildren) {
  const auto plugin = reward("echo $$ >> pids; sleep 1000 & echo $! >> pids; wait\n", "retries = 0, timeout = 0.3");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(failure(*plugin), "it did not answer in time");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  const std::vector<pid_t> pids = pids_of("pids");
  ASSERT_EQ(pids.size(), 2u);
  for (const pid_t pid : pids) EXPECT_TRUE(gone(pid)) << pid;
}

TEST_F(PluginProcess, OneThatNeverGreetsIsNotWaitedForLonger) {
  EXPECT_EQ(failure(*reward("sleep 1000\n", "retries = 0, start_timeout = 0.2", false)), "it did not answer in time");
  expect_contains(
      failure(*reward("read -r line; echo '{\"id\": 0, \"protocol\": 2}'\nread -r line\n", "retries = 0", false)),
      "it speaks protocol 2");
  expect_contains(failure(*reward("read -r line; echo '{\"id\": 0, \"error\": \"no model\"}'\nread -r line\n",
                                  "retries = 0", false)),
                  "no model");
  EXPECT_THROW(make_reward("{kind = 'process'}"), Error);
  EXPECT_THROW(make_reward("{kind = 'process', command = ['sh'], options = '{'}"), Error);
  expect_contains(failure(*make_reward("{kind = 'process', command = ['no-such-program'], retries = 0}")),
                  "no-such-program: cannot be started");
}

TEST_F(PluginProcess, WhatEndsOrSaysSomethingElseHasFailed) {
  for (const auto& [script, why] : std::vector<std::pair<std::string, std::string>>{
           {"read -r line; exit 3\n", "it ended with exit code 3"},
           {"read -r line; kill -SEGV $$\n", "it was ended by signal 11"},
           {"read -r line; printf '{\"id\": 1, \"sco'; exit 0\n", "it ended with exit code 0"},
           {"read -r line; echo 'Loading model...'\n", "its answer is not JSON: Loading model..."},
           {"read -r line; printf '\\377\\376\\001\\n'; read -r line\n", "its answer is not JSON"},
           {"read -r line; echo '{\"id\": 0, \"scores\": [1]}'\nread -r line\n", "its answer is not to request 1"},
           {"read -r line; echo '[1]'; read -r line\n", "its answer is not to request 1"},
           {"read -r line; echo '{\"id\": 1}'; read -r line\n", "its answer has no scores"},
           {"read -r line; echo '{\"id\": 1, \"scores\": []}'; read -r line\n",
            "its answer has 0 scores for 1 completions"},
           {"read -r line; echo '{\"id\": 1, \"scores\": [1, 2]}'; read -r line\n",
            "its answer has 2 scores for 1 completions"},
           {"read -r line; echo '{\"id\": 1, \"scores\": [NaN]}'; read -r line\n", "its answer is not JSON"},
           {"read -r line; echo '{\"id\": 1, \"scores\": [1e999]}'; read -r line\n", ""},
           {"read -r line; echo '{\"id\": 1, \"error\": \"out of luck\"}'; read -r line\n", "out of luck"},
           {"read -r line; printf '{\"id\": 1, \"scores\": [1]}\\n{\"id\": 2, \"scores\": [1]}\\n'; read -r line\n",
            "more than one line"}})
    expect_contains(failure(*reward(script)), why);
}

TEST_F(PluginProcess, MegabytesOfOutputAreCutShort) {
  expect_contains(failure(*reward("read -r line; head -c 80000000 /dev/zero | tr '\\0' x; sleep 1000\n")),
                  "its answer is longer than");
}

TEST_F(PluginProcess, FullPipesBlockNobody) {
  // The process writes a megabyte to each output before it reads, and the request is a megabyte too.
  const auto plugin = reward(R"(head -c 1000000 /dev/zero | tr '\0' 'e' >&2
read -r line
head -c 1000000 /dev/zero | tr '\0' ' '
echo '{"id": 1, "scores": [1]}'
read -r line
)",
                             "retries = 0, timeout = 20");
  EXPECT_EQ(score(*plugin, {std::string(1000000, 'c')})[0].score, 1);
}

TEST_F(PluginProcess, OneThatClosesItsInputOrItsOutputHasFailed) {
  EXPECT_EQ(failure(*reward("exec <&-; sleep 1000\n"), std::string(1000000, 'c')), "it closed its input");
  EXPECT_EQ(failure(*reward("exec >&-; sleep 1000\n")), "it closed its output");
}

TEST_F(PluginProcess, ALateAnswerIsNeverTakenForAnother) {
  const auto plugin = reward(R"(read -r line
if [ ! -e slept ]; then touch slept; sleep 0.6; echo '{"id": 1, "scores": [111]}'; fi
echo '{"id": 1, "scores": [1]}'
read -r line; echo '{"id": 2, "scores": [2]}'
read -r line
)",
                             "retries = 1, timeout = 0.3, workers = 1");
  EXPECT_EQ(score(*plugin, {"a"})[0].score, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(score(*plugin, {"b"})[0].score, 2);
}

TEST_F(PluginProcess, OutputBetweenRequestsIsNoAnswer) {
  const auto plugin = reward(R"(read -r line
if [ ! -e once ]; then touch once; echo '{"id": 1, "scores": [1]}'; sleep 0.1; echo '{"id": 2, "scores": [222]}'; fi
echo '{"id": 1, "scores": [3]}'
read -r line
)",
                             "retries = 1, workers = 1");
  EXPECT_EQ(score(*plugin, {"a"})[0].score, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(score(*plugin, {"b"})[0].score, 3);
}

TEST_F(PluginProcess, OneThatDiesIsStartedAgain) {
  const auto plugin = reward("echo $$ >> pids; read -r line; echo '{\"id\": 1, \"scores\": [1]}'\n", "retries = 1");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(score(*plugin, {"a"})[0].score, 1);
  EXPECT_EQ(pids_of("pids").size(), 3u);
}

TEST_F(PluginProcess, APoisonousCompletionFailsAlone) {
  const auto plugin = reward(R"(n=0
while read -r line; do
  n=$((n + 1))
  case "$line" in *poison*) exit 1;; esac
  case "$line" in *three*) echo "{\"id\": $n, \"scores\": [7, 7, 7]}";; *) echo "{\"id\": $n, \"scores\": [5]}";; esac
done
)",
                             "retries = 1");
  const std::vector<RewardScore> scores = score(*plugin, {"a", "poison", "b"});
  EXPECT_EQ(scores[0].score, 5);
  EXPECT_TRUE(scores[1].failed);
  EXPECT_EQ(scores[1].note, "it ended with exit code 1");
  EXPECT_EQ(scores[2].score, 5);
  EXPECT_EQ(score(*plugin, {"one", "two", "three"})[1].score, 7);
}

TEST_F(PluginProcess, NoMoreProcessesThanWorkersServeAnyNumberOfThreads) {
  const auto plugin = reward(R"(echo $$ >> pids
n=0
while read -r line; do n=$((n + 1)); echo "{\"id\": $n, \"scores\": [1]}"; done
)",
                             "workers = 2");
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 10; ++k) right += score(*plugin, {"a"})[0].score == 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 60);
  EXPECT_LE(pids_of("pids").size(), 2u);
  EXPECT_EQ(plugin->concurrency(), 2);
}

TEST_F(PluginProcess, NothingOutlivesItsReward) {
  {
    const auto plugin = reward(
        "echo $$ >> pids; sleep 1000 & echo $! >> pids; read -r line; echo '{\"id\": 1, \"scores\": [1]}'\nread -r "
        "line; sleep 1000\n");
    EXPECT_EQ(score(*plugin, {"a"})[0].score, 1);
  }
  const std::vector<pid_t> pids = pids_of("pids");
  ASSERT_EQ(pids.size(), 2u);
  for (const pid_t pid : pids) EXPECT_TRUE(gone(pid)) << pid;
}

TEST_F(PluginProcess, APartThatFailsFailsTheSumAndOneThatSkipsIsLeftOut) {
  const auto sum_with = [&](const std::string& scores) {
    const std::string path = (folder.path() / "part.sh").string();
    std::ofstream(path) << greeting << "read -r line; echo '{\"id\": 1, \"scores\": [" << scores
                        << "]}'\nread -r line\n";
    const auto both = make_reward(
        "{kind = 'composite', parts = [{kind = 'exact', weight = 2}, {kind = 'process', name = 'outside', command = "
        "['sh', '" +
        path + "']}]}");
    return both->score({.id = "t", .prompt = "", .messages = {}, .answer = "a", .columns = {}},
                       {.ids = {}, .text = "a", .finish_reason = "stop"});
  };
  EXPECT_EQ(sum_with("0.5").score, 2.5);
  const RewardScore skipped = sum_with("null");
  EXPECT_EQ(skipped.score, 2);
  EXPECT_FALSE(skipped.skipped);
  EXPECT_EQ(skipped.parts, (Metrics{{"exact", 1}}));
  const RewardScore failed = sum_with("{\"error\": \"odd\"}");
  EXPECT_TRUE(failed.failed);
  EXPECT_EQ(failed.failed_parts, (std::vector<std::string>{"outside"}));
  EXPECT_EQ(failed.parts, (Metrics{{"exact", 1}}));
  EXPECT_EQ(failed.note, "outside: odd");
}

}  // namespace
}  // namespace hone::test
