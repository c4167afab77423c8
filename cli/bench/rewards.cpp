#include "cli/bench/rewards.h"

#include <ctime>

#include "rewards/reward.h"

namespace hone {

namespace {

struct Case {
  const char *reward, *what, *answer, *completion;
  const char* row = "{}";
};

// Solutions as models write them for GSM8K, MATH and countdown, right and wrong: a wrong answer takes the longest.
constexpr const char* solution =
    "Janet's ducks lay 16 eggs a day. She eats 3 for breakfast and uses 4 to bake muffins, so she has 16 - 3 - 4 = "
    "<<16-3-4=9>>9 eggs left.\n"
    "She sells them at $2 each and makes 9 * 2 = $<<9*2=18>>18 every day at the farmers' market.\n#### 18";
constexpr Case cases[] = {
    {"math", "gsm8k, right", "18", solution},
    {"math", "gsm8k, wrong", "17", solution},
    {"math", "the answer is, right", "18", "She sells 9 eggs at $2 each. The answer is $18."},
    {"math", "boxed fraction, right", "\\frac{1}{2}",
     "Half of the marbles are red, so the probability is $\\boxed{\\dfrac{2}{4}}$."},
    {"math", "boxed expression, right", "x^2 + 2x + 1", "Expanding gives $\\boxed{(x+1)^2}$."},
    {"math", "boxed expression, wrong", "x^2 + 2x + 1", "Expanding gives $\\boxed{(x-1)^2}$."},
    {"number", "gsm8k, right", "18", solution},
    {"choice", "the answer is, right", "B", "Seven is the only prime among them. The answer is (B)."},
    {"countdown", "answer tag, right", "", "<think>19 + 35 is 54.</think>\n<answer>(19 + 35) + 44</answer>",
     R"({"nums": [44, 19, 35], "target": 98})"},
};

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

std::vector<RewardBench> bench_rewards(const std::string& filter, double seconds) {
  std::vector<RewardBench> out;
  for (const Case& one : cases) {
    if (concat(one.reward, " ", one.what).find(filter) == std::string::npos) continue;
    const auto reward = make_reward(one.reward);
    const Task task{
        .id = one.what, .prompt = "", .messages = {}, .answer = one.answer, .columns = parse_json(one.row, one.what)};
    const Completion completion{.ids = {}, .text = one.completion, .finish_reason = "stop"};
    const double begin = thread_seconds();
    int64_t judged = 0;
    double used = 0;
    while (used < seconds) {
      for (int k = 0; k < 100; ++k) reward->score(task, completion);
      judged += 100;
      used = thread_seconds() - begin;
    }
    out.push_back({.reward = one.reward, .what = one.what, .per_second = static_cast<double>(judged) / used});
  }
  return out;
}

}  // namespace hone
