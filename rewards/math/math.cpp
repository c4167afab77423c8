// The "math" reward: 1 if the mathematical answer of the completion equals the task's. It reads numbers, fractions,
// percentages, units, radicals, expressions with variables, tuples, intervals, sets, equations, matrices and words.
// extract_answer (math_answer.h) finds the answer and math_equal (compare.h) compares it.
#include "rewards/answers/answer_text.h"
#include "rewards/answers/math_answer.h"
#include "rewards/answers/text.h"
#include "rewards/math/compare.h"
#include "rewards/reward.h"

namespace hone {

namespace {

class Math : public Reward {
 public:
  void fields(Fields& f) override {
    f("sources", names_,
      "where answers are searched: \"latex\" (\\boxed{}, formulas), \"expression\" (\"#### 18\", \"the answer is 18\", "
      "the value that the last sentence states)");
    f("strict", policy_.strict,
      "the answer must be finished and in the reference's form (10/2 is not 5, lists are in order)");
    f("precision", precision_, "number of decimals to which a decimal and another number must agree, 0 to 15");
    f("any_names", policy_.any_names, "accept other names for variables: f(y) for f(x)");
    f("inequality_for_interval", policy_.inequality_for_interval, "accept -2 <= x <= 7 where the reference is [-2,7]");
  }
  void prepare() override {
    HONE_CHECK(precision_ >= 0 && precision_ <= 15, "precision is ", precision_, "; it must be in [0, 15]");
    policy_.precision = static_cast<int>(precision_);
    sources_ = {.latex = false, .expression = false};
    for (const std::string& name : names_) {
      HONE_CHECK(name == "latex" || name == "expression", "sources: '", name,
                 "' is unknown; use \"latex\" or \"expression\"");
      (name == "latex" ? sources_.latex : sources_.expression) = true;
    }
    HONE_CHECK(sources_.latex || sources_.expression, "sources is empty; use \"latex\", \"expression\" or both");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    HONE_CHECK(!trimmed(task.answer).empty(), "reward math: task '", task.id, "' has no answer");
    const std::string expected = extract_reference(task.answer);
    const std::vector<std::string> readings = readings_of(completion);
    if (readings.empty()) return {.score = 0, .note = "no answer found"};
    if (right_reading(expected, readings)) return {.score = 1};
    return {.score = 0, .note = "expected " + excerpt(expected) + ", got " + excerpt(readings.front())};
  }
  bool reads_answers(const Task&) const override { return true; }
  // Returns the right reading if there is one, else the most literal one.
  std::optional<std::string> read_answer(const Task& task, const Completion& completion) const override {
    const std::vector<std::string> readings = readings_of(completion);
    if (readings.empty()) return std::nullopt;
    const std::string* right = right_reading(extract_reference(task.answer), readings);
    return right ? *right : readings.front();
  }
  bool same_answers(const Task&, const std::string& a, const std::string& b) const override {
    return math_equal(a, b, policy_) || math_equal(b, a, policy_);
  }

 private:
  std::vector<std::string> readings_of(const Completion& completion) const {
    return extract_answer(answer_part(completion.text), sources_);
  }
  const std::string* right_reading(const std::string& expected, const std::vector<std::string>& readings) const {
    for (const std::string& reading : readings)
      if (math_equal(expected, reading, policy_)) return &reading;
    return nullptr;
  }

  std::vector<std::string> names_ = {"latex", "expression"};
  int64_t precision_ = 6;
  MathPolicy policy_;
  MathSources sources_;
};

[[maybe_unused]] const bool added = rewards().add("math", [] { return std::unique_ptr<Reward>(new Math); });

}  // namespace

}  // namespace hone
