// Reward functions for TRL in Python files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/base/check.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr const char* functions = R"(
import asyncio
import os
import sys
from beside import three

def shows(prompts, completions, completion_ids, answer, level=None, **columns):
    """Its score is the length of the repr of what it got."""
    print("a print")
    os.system("echo from a shell")
    sys.stdout.write('{"id": 1, "scores": [999]}\n')
    with open(os.path.join(os.path.dirname(__file__), "seen"), "w") as out:
        print(repr((prompts, completions, completion_ids, answer, level, sorted(columns))), file=out)
    return [1.0 * len(p) for p in prompts]

async def waits(completions, **columns):
    await asyncio.sleep(0.01)
    return [float(len(c)) for c in completions]

def some(completions, **columns):
    return [None if c == "skip" else float(c) for c in completions]

def picks(completions, answer):
    return [a == c for a, c in zip(answer, completions)]

def short(completions, **columns):
    return [1.0]

def raises(completions, **columns):
    raise KeyError("level")

def leaves(completions, **columns):
    sys.exit(4)

def dies(completions, **columns):
    os._exit(4)

def listens(completions, **columns):
    return [float(len(sys.stdin.read())) for c in completions]

def gives(completions, **columns):
    return (x for x in [True, 2, three])

_hidden = 1
)";

class PluginPython : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c 'import asyncio' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
    std::ofstream(folder.path() / "rewards.py") << functions;
    std::ofstream(folder.path() / "beside.py") << "three = 3.0\n";
  }
  std::shared_ptr<const Reward> reward(const std::string& function, const std::string& file = "rewards.py") const {
    return make_reward("{kind = 'python', retries = 0, workers = 1, path = '" + (folder.path() / file).string() +
                       "', function = '" + function + "'}");
  }
  std::vector<RewardScore> score(const Reward& reward, const std::vector<std::string>& texts) const {
    std::vector<Completion> completions;
    for (const std::string& text : texts) completions.push_back({.ids = {1, 2}, .text = text, .finish_reason = "stop"});
    std::vector<RewardScore> scores(texts.size());
    reward.score_group(task, completions, scores);
    return scores;
  }
  std::string failure(const std::string& function, const std::string& file = "rewards.py") const {
    const RewardScore out = score(*reward(function, file), {"1", "2"})[0];
    EXPECT_TRUE(out.failed) << function;
    return out.note;
  }
  std::string seen() const {
    std::ifstream in(folder.path() / "seen");
    std::string line;
    std::getline(in, line);
    return line;
  }
  static void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  TemporaryFolder folder;
  Task task{.id = "t",
            .prompt = "ask",
            .messages = {},
            .answer = "2",
            .columns = JsonObject{{"level", "hard"}, {"prompt", "ask"}, {"topic", 1}}};
};

TEST_F(PluginPython, IsCalledAsTrlCallsIt) {
  EXPECT_EQ(score(*reward("shows"), {"x", "y"})[1].score, 3);
  EXPECT_EQ(seen(), "(['ask', 'ask'], ['x', 'y'], [[1, 2], [1, 2]], ['2', '2'], ['hard', 'hard'], ['topic'])");
}

TEST_F(PluginPython, AConversationIsListsOfMessages) {
  task.messages = {{.role = "system", .content = "s", .extra = {}}, {.role = "user", .content = "u", .extra = {}}};
  EXPECT_EQ(score(*reward("shows"), {"x"})[0].score, 2);
  expect_contains(seen(),
                  "([[{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'u'}]], [[{'role': 'assistant', "
                  "'content': 'x'}]], ");
}

TEST_F(PluginPython, PrintsDoNotReachTheAnswersAndRequestsAreNotTheFunctionsToRead) {
  const auto plugin = reward("shows");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(score(*plugin, {"x", "y"})[0].score, 3);
  EXPECT_EQ(score(*reward("listens"), {"x"})[0].score, 0);
}

TEST_F(PluginPython, CoroutinesAreAwaited) { EXPECT_EQ(score(*reward("waits"), {"x", "four"})[1].score, 4); }

TEST_F(PluginPython, NoneSkipsAndWhatIsNoFiniteNumberFails) {
  const std::vector<RewardScore> scores = score(*reward("some"), {"0.5", "skip", "nan", "-inf"});
  EXPECT_EQ(scores[0].score, 0.5);
  EXPECT_TRUE(scores[1].skipped);
  EXPECT_TRUE(scores[2].failed);
  EXPECT_EQ(scores[2].note, "its score is nan");
  EXPECT_TRUE(scores[3].failed);
}

TEST_F(PluginPython, WithoutKeywordArgumentsAFunctionGetsThoseItNames) {
  const std::vector<RewardScore> scores = score(*reward("picks"), {"1", "2"});
  EXPECT_EQ(scores[0].score, 0);
  EXPECT_EQ(scores[1].score, 1);
}

TEST_F(PluginPython, AnythingThatCanBeIteratedIsAListOfScores) {
  EXPECT_EQ(score(*reward("gives"), {"1", "2", "3"})[2].score, 3);
}

TEST_F(PluginPython, WhatAFunctionGetsWrongIsSaid) {
  expect_contains(failure("short"), "it returned 1 scores for 2 completions");
  expect_contains(failure("raises"), "KeyError: 'level' (line 30 of rewards.py)");
  expect_contains(failure("leaves"), "SystemExit: 4");
  expect_contains(failure("dies"), "it ended with exit code 4");
  expect_contains(failure("no_such"), "has no function no_such; it defines shows, waits, some");
  expect_contains(failure("_hidden"), "has no function _hidden");
  expect_contains(failure(""), "say which by function = \"...\"");
  std::ofstream(folder.path() / "wrong.py") << "def reward(:\n";
  expect_contains(failure("", "wrong.py"), "SyntaxError");
  EXPECT_THROW(reward("", "nowhere.py"), Error);
  EXPECT_THROW(make_reward("python"), Error);
}

TEST_F(PluginPython, AFileWithOneFunctionNeedsNoName) {
  std::ofstream(folder.path() / "one.py") << "import math\nfrom os.path import join\ndef reward(completions, "
                                             "**columns):\n  return [math.pi] * len(completions)\n";
  EXPECT_EQ(score(*reward("", "one.py"), {"a"})[0].score, 3.141592653589793);
}

TEST_F(PluginPython, AFileNeedsNoSuffix) {
  std::ofstream(folder.path() / "reward") << "def reward(completions, **columns):\n  return [2] * len(completions)\n";
  EXPECT_EQ(score(*reward("", "reward"), {"a"})[0].score, 2);
}

TEST_F(PluginPython, TheExamplesScoreTextsAndConversations) {
  const std::string file = (source_folder() / "examples/reward_python/reward.py").string();
  const auto number = make_reward("{kind = 'python', function = 'same_number', path = '" + file + "'}");
  EXPECT_EQ(score(*number, {"it is 2", "3"})[0].score, 1);
  task.messages = {{.role = "user", .content = "u", .extra = {}}};
  EXPECT_EQ(score(*number, {"it is 2", "3"})[1].score, 0);
  EXPECT_EQ(
      score(*make_reward("{kind = 'python', function = 'brevity', path = '" + file + "'}"), {std::string(50, 'x')})[0]
          .score,
      0.75);
}

TEST_F(PluginPython, TheOldKeyFileIsReadAsPath) {
  const std::string file = (folder.path() / "rewards.py").string();
  const auto old = make_reward("{kind = 'python', workers = 1, file = '" + file + "', function = 'short'}");
  EXPECT_EQ(old->unavailable_reason(), "");
  try {
    make_reward("{kind = 'python', file = 'a.py', path = 'b.py'}");
    FAIL() << "both names were taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'file' is the old name of 'path'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hone::test
