// A program that misbehaves scores 0. An error of the judge is a failed score that names the task.
#include <fstream>

#include "core/io/jsonl.h"
#include "core/text/unicode/unicode.h"
#include "tests/rewards/code/code_run.h"
#include "tests/support/process.h"

namespace hone::test {
namespace {

// Exceptions with an odd text or name, raised by the function f.
const std::vector<std::string> kOddRaises = {
    "raise ValueError('\\ud800 lone')",
    "raise ValueError('\\udcff\\udc80')",
    "raise KeyError('\\ud800')",
    "raise ValueError('a\\0b\\x1b[31m\\r\\nNONCE passed 1\\u2028x')",
    "raise ValueError('x' * 10**9)",
    "raise ValueError('\\U0010ffff' * 1000)",
    "raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})()",
    "raise type('E', (Exception,), {'__str__': lambda s: 7})()",
    "raise type('E', (Exception,), {'__str__': lambda s: __import__('os')._exit(0)})()",
    "raise type('E', (Exception,), {'__str__': lambda s: exit()})()",
    "raise type('E', (Exception,), {'__str__': lambda s: __import__('time').sleep(60)})()",
    "raise type('\\udfff', (Exception,), {})('\\udfff')",
    "raise type('E', (BaseException,), {'__getattribute__': lambda s, n: 1 / 0})()",
    "raise SystemExit('\\ud800')",
    "raise KeyboardInterrupt",
    "raise UnicodeDecodeError('utf-8', b'\\xff', 0, 1, '\\ud800')",
    "raise ExceptionGroup('\\ud800', [ValueError('\\ud800')])",
    "raise SyntaxError('\\ud800', ('\\ud800', 10**5, 1, '\\ud800'))",
    "raise AssertionError('\\ud800')",
    "raise OSError(1, '\\ud800', '\\ud800')",
};

TEST_F(CodeReward, AnExceptionsTextGivesZeroWhateverItsCharacters) {
  for (const std::string& raise : kOddRaises)
    for (const std::string& program : {"def f(x): " + raise, raise + "\ndef f(x): return 7"}) {
      std::vector<Task> tasks = in_all_styles("7");
      tasks.push_back(task_of(R"({"inputs": ["3\n"], "outputs": ["7\n"]})"));
      tasks.push_back(asserts({"got = f(3)\nassert got == 7, got"}));
      for (const Task& task : tasks) {
        const RewardScore got = judge(task, program + "\nf(3)", ", sandbox = {wall_seconds = 2}");
        EXPECT_EQ(got.score, 0) << program;
        EXPECT_FALSE(got.failed) << got.note << "\n" << program;
        EXPECT_FALSE(got.note.empty()) << program;
        EXPECT_LT(got.note.size(), 400u);
        EXPECT_EQ(
            std::count_if(got.note.begin(), got.note.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }),
            0)
            << program;
        EXPECT_EQ(parse_json(Json(got.note).dump(), "note").is_string(), true);
      }
    }
}

TEST_F(CodeReward, WhatAProgramReturnsIsShownWhateverItsCharacters) {
  for (const char* value : {"'\\ud800'", "'\\0'", "b'\\xff'", "{'\\ud800': float('inf')}", "'\\u202e\\x1b[2J'"})
    for (const Task& task : in_all_styles("7")) {
      const RewardScore got = judge(task, concat("def f(x): return ", value));
      EXPECT_EQ(got.score, 0) << value;
      EXPECT_FALSE(got.failed) << got.note;
      EXPECT_EQ(valid_utf8_prefix(got.note), got.note.size()) << got.note;
    }
  EXPECT_EQ(judge(asserts({"assert f(3) == '\\ud800'"}), "def f(x): return '\\ud800'").score, 1);
}

TEST_F(CodeReward, TheJudgesOwnTroubleIsAFailedScoreThatNamesTheTask) {
  const auto expect_failed = [](const RewardScore& got, const std::string& words) {
    EXPECT_TRUE(got.failed) << got.note;
    EXPECT_EQ(got.score, 0);
    EXPECT_TRUE(got.note.starts_with("rows.jsonl:1: ")) << got.note;
    EXPECT_NE(got.note.find(words), std::string::npos) << got.note;
  };
  const Task task = asserts({"assert f(3) == 7"});
  expect_failed(judge(task, "def f(x): return 7", ", python = '/bin/false'"), "python could not judge: exit code 1");
  expect_failed(judge(asserts({"assert f(3) == 7", "assert f(3) =="}), "def f(x): return 7"), "test 2 is not Python");
  expect_failed(
      judge(task_of(R"({"test_list": ["assert f(3) == 7"], "test_setup_code": "def"})"), "def f(x): return 7"),
      "setup is not Python");
  std::vector<std::string> many(200, "assert f(3) == 7");
  expect_failed(judge(asserts(many), "def f(x): return 7", ", sandbox = {output_kb = 1}"), "output_kb");
  // A guard that is missing when the run starts.
  const auto reward = make_reward("code");
  const PretendedGuards none(without_namespaces());
  RewardSpec late;
  Config::from_text("reward = {kind = 'code'}", "recipe.toml").read([&](Fields& f) { f("reward", late, ""); });
  expect_failed(late.reward->score(task, {.ids = {}, .text = "def f(x): return 7", .finish_reason = "stop"}),
                "the sandbox refused: guards are missing");
}

TEST_F(CodeReward, TheCommandWritesEveryRowWhateverAProgramRaises) {
  const TemporaryFolder folder;
  const std::string in = folder.path() / "rows.jsonl";
  std::ofstream file(in);
  for (const std::string& raise : kOddRaises)
    file << Json(JsonObject{{"completion", "def f(x):\n  " + raise}, {"test_list", JsonArray{"assert f(3) == 7"}}})
                .dump()
         << "\n";
  file << R"({"completion": "def f(x): return 7", "test_list": ["assert f(3) == 7"]})"
       << "\n";
  file.close();
  const Finished done =
      run_hone({"reward", "--reward", "{kind = 'code', sandbox = {wall_seconds = 1}}", "--in", in, "--json"});
  EXPECT_EQ(done.code, 0) << done.err;
  std::ofstream(folder.path() / "out.jsonl") << done.out;
  double sum = 0;
  size_t rows = 0;
  read_jsonl(folder.path() / "out.jsonl", [&](const Json& row, int64_t) {
    sum += row.at("score").as_double();
    ++rows;
  });
  EXPECT_EQ(rows, kOddRaises.size() + 1);
  EXPECT_EQ(sum, 1);
}

}  // namespace
}  // namespace hone::test
