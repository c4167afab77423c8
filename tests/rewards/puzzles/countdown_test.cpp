#include <functional>

#include "core/io/jsonl.h"
#include "rewards/answers/rational.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone {

static RewardScore judge(const std::string& text, const std::string& row = R"({"nums": [44, 19, 35], "target": 98})",
                         const std::string& spec = "countdown") {
  const Task task{.id = "t", .prompt = "", .messages = {}, .answer = "", .columns = parse_json(row, "row")};
  return make_reward(spec)->score(task, {.ids = {}, .text = text, .finish_reason = "stop"});
}

TEST(Countdown, AnExpressionThatMakesTheTarget) {
  for (const char* text : {"<think>..</think> <answer>44 + 19 + 35</answer>", "44+19+35",
                           "The answer is (44 + 19) + 35 = 98", "\\boxed{19 + 35 + 44}", "First try.\n35 - (-19) + 44"})
    EXPECT_EQ(judge(text).score, 1) << text;
  EXPECT_EQ(judge("96 \\div (2 \\times 3)", R"({"nums": [2, 3, 96], "target": 16})").score, 1);
  EXPECT_EQ(judge("8 / (3 - 8 ÷ 3)", R"({"nums": [3, 3, 8, 8], "target": 24})").score,
            1);  // exact: no rounding of intermediate results
}

TEST(Countdown, EachNumberAtMostOnce) {
  EXPECT_EQ(judge("98").note, "98 is not there to be used");
  EXPECT_EQ(judge("44 + 44 + 10").note, "44 is not there to be used again");
  EXPECT_EQ(judge("4 + 4", R"({"nums": [4, 4, 7], "target": 8})").score, 1);
  EXPECT_EQ(judge("4 + 4 + 4", R"({"nums": [4, 4, 7], "target": 12})").score, 0);
  EXPECT_EQ(judge("4 + 4", R"({"nums": [4, 4, 7], "target": 8})", "{kind = 'countdown', use_all = true}").note,
            "7 is not used");
}

TEST(Countdown, WhatIsNoExpressionScoresNothing) {
  for (const char* text :
       {"", "44 +", "44 ** 2", "44 // 2", "(44 + 19 + 35", "44 19 35", "4.4", "x = 44", "44 + 19 + 35 = 99",
        "44 = 44 = 44 + 0", "__import__('os')", "44 + 19 / (35 - 35)", "()", "9999999999999999999999", "))))"})
    EXPECT_EQ(judge(text).parts.at("format"), 0) << text;
  const RewardScore missed =
      judge("44 + 19", R"({"nums": [44, 19, 35], "target": 98})", "{kind = 'countdown', format_score = 0.1}");
  EXPECT_EQ(missed.score, 0.1);
  EXPECT_EQ(missed.note, "expected 98, got 63");
  EXPECT_EQ(missed.parts, (Metrics{{"answer", 0}, {"format", 1}}));
  EXPECT_EQ(judge("44 / 19").note, "expected 98, got 44/19");
}

TEST(Countdown, OverflowAndDepthAreNoValues) {
  const std::string row = R"({"nums": [4000000000000000000, 3999999999999999999, 4000000000000000000], "target": 0})";
  EXPECT_EQ(judge("4000000000000000000 * 4000000000000000000", row).note, "the numbers grow too large");
  EXPECT_EQ(judge("4000000000000000000 / 3999999999999999999 - 4000000000000000000", row).note,
            "the numbers grow too large");
  EXPECT_EQ(judge("4000000000000000000 - 4000000000000000000", row).score, 1);
  EXPECT_EQ(judge(std::string(500, '(') + "1" + std::string(500, ')')).score, 0);
}

TEST(Countdown, ARowWithoutNumbersIsAnError) {
  EXPECT_THROW(judge("1", R"({"target": 1})"), Error);
  EXPECT_THROW(judge("1", R"({"nums": ["one"], "target": 1})"), Error);
}

// Finds an expression over the numbers that makes the target by exhaustive search; "" if there is none.
static std::string solve(const std::vector<std::pair<Rational, std::string>>& have, const Rational& target) {
  for (const auto& [value, text] : have)
    if (value == target) return text;
  for (size_t i = 0; i < have.size(); ++i)
    for (size_t j = 0; j < have.size(); ++j)
      for (const char op : {'+', '-', '*', '/'}) {
        if (i == j) continue;
        const auto value = apply(op, have[i].first, have[j].first);
        if (!value) continue;
        std::vector<std::pair<Rational, std::string>> next = {
            {*value, "(" + have[i].second + " " + op + " " + have[j].second + ")"}};
        for (size_t k = 0; k < have.size(); ++k)
          if (k != i && k != j) next.push_back(have[k]);
        if (std::string found = solve(next, target); !found.empty()) return found;
      }
  return "";
}

TEST(Countdown, PublishedRowsCanBeSolved) {
  HONE_SHARED_OR_SKIP(path, "data/rl/countdown_test.jsonl");
  int rows = 0;
  read_jsonl(path, [&](const Json& row, int64_t) {
    ++rows;
    std::vector<std::pair<Rational, std::string>> have;
    for (const Json& number : row.at("nums").as_array())
      have.push_back({Rational{number.as_int(), 1}, std::to_string(number.as_int())});
    const std::string solution = solve(have, {row.at("target").as_int(), 1});
    EXPECT_EQ(judge("<answer>" + solution + "</answer>", row.dump()).score, 1) << row.dump() << " " << solution;
    EXPECT_EQ(judge("<answer>" + solution + " + 1</answer>", row.dump()).score, 0) << row.dump();
  });
  EXPECT_EQ(rows, 2001);
}

}  // namespace hone
