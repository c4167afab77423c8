// The comparison on published cases and entire data sets.
#include <cstdio>
#include <ctime>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "rewards/answers/math_answer.h"
#include "rewards/math/compare.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone {

static bool judge(const std::string& reference, const std::string& completion, const MathPolicy& policy = {},
                  const MathSources& sources = {}) {
  const std::string expected = extract_reference(reference);
  for (const std::string& reading : extract_answer(completion, sources))
    if (math_equal(expected, reading, policy)) return true;
  return false;
}

TEST(MathVectors, CasesOfMathVerify) {
  HONE_SHARED_OR_SKIP(path, "vectors/math/math_verify_cases.json");
  const Json cases = parse_json(read_file(path), path.string());
  int right[3] = {}, count[3] = {};
  for (const Json& one : cases.at("cases").as_array()) {
    const auto flag = [&](const char* key, bool otherwise) {
      return one.find(key) ? one.at(key).as_bool() : otherwise;
    };
    const MathPolicy policy{.precision = one.find("precision") ? static_cast<int>(one.at("precision").as_int()) : 6,
                            .any_names = !flag("strict", true),
                            .inequality_for_interval = flag("allow_set_relation_comp", false)};
    MathSources sources{.latex = false, .expression = false};
    if (one.at("extract").is_string())
      sources = {};
    else
      for (const Json& name : one.at("extract").as_array())
        (name.as_string() == "latex" ? sources.latex : sources.expression) = true;
    const int64_t tier = one.at("tier").as_int();
    const bool equal = judge(one.at("gold").as_string(), one.at("answer").as_string(), policy, sources);
    ++count[tier];
    right[tier] += equal == one.at("equal").as_bool();
    // A wrong answer never counts as right.
    EXPECT_TRUE(!equal || one.at("equal").as_bool())
        << one.at("gold").as_string() << " | " << one.at("answer").as_string();
  }
  EXPECT_EQ(count[1], 70);
  EXPECT_EQ(right[1], count[1]);
  EXPECT_EQ(count[2], 31);
  EXPECT_EQ(right[2], count[2]);
}

TEST(MathVectors, EveryGsm8kAnswerEqualsItself) {
  HONE_SHARED_OR_SKIP(path, "data/eval/gsm8k_test.jsonl");
  int rows = 0, right = 0, wrong_accepted = 0;
  std::string before = "no number";
  read_jsonl(path, [&](const Json& row, int64_t) {
    const std::string &answer = row.at("answer").as_string(), &last = row.at("final").as_string();
    ++rows;
    if (judge(answer, answer) && judge(last, answer) && judge(answer, "So the answer is $" + last + ".") &&
        judge(last, "\\boxed{" + last + "}"))
      ++right;
    if (last != before && judge(last, "The answer is " + before)) ++wrong_accepted;
    before = last;
  });
  EXPECT_EQ(rows, 1319);
  EXPECT_EQ(right, rows);
  EXPECT_EQ(wrong_accepted, 0);
}

TEST(MathVectors, FiftyThousandComparisonsASecondOnOneCore) {
  HONE_SHARED_OR_SKIP(path, "data/eval/gsm8k_test.jsonl");
  const auto reward = make_reward("math");
  std::vector<Task> tasks;
  std::vector<Completion> completions;
  read_jsonl(path, [&](const Json& row, int64_t line) {
    tasks.push_back({.id = std::to_string(line),
                     .prompt = "",
                     .messages = {},
                     .answer = row.at("final").as_string(),
                     .columns = {}});
    completions.push_back({.ids = {}, .text = row.at("answer").as_string(), .finish_reason = "stop"});
  });
  const auto thread_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  int64_t judged = 0, right = 0;
  const double begin = thread_seconds();
  while (judged < 20000)
    for (size_t i = 0; i < tasks.size(); ++i, judged += 2) {
      right += reward->score(tasks[i], completions[i]).score == 1;
      right += reward->score(tasks[i], completions[(i + 1) % tasks.size()]).score == 1;
    }
  const double per_second = static_cast<double>(judged) / (thread_seconds() - begin);
  EXPECT_GE(per_second, 50000);
  EXPECT_GT(right, judged / 2 - 1);
  EXPECT_LT(right, judged * 6 / 10);
  std::printf("%.0f comparisons/s\n", per_second);
}

TEST(MathVectors, MathAnswersEqualThemselves) {
  int rows = 0, from_solution = 0, boxed = 0, read = 0, wrong_accepted = 0;
  for (const char* name : {"data/eval/math_test.jsonl.gz", "data/eval/math_train.jsonl.gz"}) {
    HONE_SHARED_OR_SKIP(path, name);
    std::string before = "no answer";
    read_jsonl(path, [&](const Json& row, int64_t) {
      const std::string &answer = row.at("answer").as_string(), &other_form = row.at("answer_norm").as_string();
      ++rows;
      boxed += judge(answer, "We find $\\boxed{" + answer + "}$.");
      from_solution += judge(answer, row.at("solution").as_string());
      // Written differently, so that a comparison of letters is not enough.
      read += math_equal(answer + " + 0 - 0", answer) || math_equal("x = " + answer, answer) ||
              math_equal("\\{" + answer + "\\}", answer);
      wrong_accepted += other_form != before && math_equal(before, answer);
      // One digit differs, outside a unit's exponent.
      std::string off = answer;
      const size_t digit = off.find_last_of("0123456789");
      const bool plain = answer.find("\\text") == std::string::npos && answer.find("\\mbox") == std::string::npos;
      if (digit != std::string::npos && plain && answer.find("\\approx") == std::string::npos) {
        off[digit] = off[digit] == '9' ? '0' : static_cast<char>(off[digit] + 1);
        wrong_accepted += judge(answer, "\\boxed{" + off + "}");
      }
      before = other_form;
    });
  }
  EXPECT_EQ(rows, 12500);
  EXPECT_GE(boxed, rows * 995 / 1000);
  EXPECT_GE(from_solution, rows * 995 / 1000);
  EXPECT_GE(read, rows * 995 / 1000);
  EXPECT_EQ(wrong_accepted, 0);
}

}  // namespace hone
