#pragma once
// Runs programs through the reward `code`, as completions.
#include <gtest/gtest.h>

#include <filesystem>

#include "rewards/reward.h"
#include "rewards/sandbox/sandbox.h"
#include "tests/support/guards.h"
#include "tests/support/support.h"

namespace hone::test {

inline Task task_of(Json row, const std::string& answer = "") {
  return {.id = "rows.jsonl:1", .prompt = {}, .messages = {}, .answer = answer, .columns = std::move(row)};
}
inline Task task_of(const char* row, const std::string& answer = "") { return task_of(parse_json(row, "row"), answer); }
inline Task asserts(const std::vector<std::string>& tests) {
  return task_of(JsonObject{{"test_list", Json::array(tests)}});
}

inline RewardScore judge_program(const Task& task, const std::string& program, const std::string& keys = "") {
  return make_reward("{kind = 'code'" + keys + "}")->score(task, {.ids = {}, .text = program, .finish_reason = "stop"});
}

// The same task in the three styles of tests: f(3) must return `expected` (a Python and JSON value).
inline std::vector<Task> in_all_styles(const std::string& expected) {
  return {task_of(JsonObject{{"prompt", "def f(x):\n    \"\"\"What to give.\"\"\"\n"},
                             {"entry_point", "f"},
                             {"test", "def check(candidate):\n    assert candidate(3) == " + expected + "\n"}}),
          asserts({"assert f(3) == " + expected}),
          task_of(JsonObject{{"fn_name", "f"},
                             {"inputs", JsonArray{JsonArray{3}}},
                             {"outputs", JsonArray{parse_json(expected, "expected")}}})};
}

class CodeReward : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string refusal = Sandbox({}).refusal(); !refusal.empty()) GTEST_SKIP() << refusal;
    if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "no /usr/bin/python3";
  }
  static RewardScore judge(const Task& task, const std::string& program, const std::string& keys = "") {
    return judge_program(task, program, keys);
  }
  static void expect(const Task& task, const std::string& program, double score, const std::string& note) {
    const RewardScore got = judge(task, program);
    EXPECT_EQ(got.score, score) << program << "\n" << got.note;
    EXPECT_FALSE(got.failed) << program << "\n" << got.note;
    EXPECT_NE(got.note.find(note), std::string::npos) << got.note << "\n" << program;
  }
};

}  // namespace hone::test
