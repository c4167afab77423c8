// The mathematical answer of a completion means the same as the task's: numbers, fractions, percentages, units, radicals, expressions with
// variables, tuples, intervals, sets, equations, matrices, words. math_extract finds it, math_compare judges it.
#include "rewards/answer_text.h"
#include "rewards/math_compare.h"
#include "rewards/math_extract.h"
#include "rewards/reward.h"
#include "rewards/text.h"

namespace hone {

namespace {

class Math : public Reward {
 public:
  void fields(Fields& f) override {
    f("sources", names_,
      "where an answer is looked for: \"latex\" (\\boxed{}, formulas), \"expression\" (\"#### 18\", \"the answer is 18\", the value that the last "
      "sentence states)");
    f("strict", policy_.strict, "the answer must be finished and in the reference's form (10/2 is not 5, lists are in order)");
    f("precision", precision_, "decimals to which a decimal number and another number must agree");
    f("any_names", policy_.any_names, "variables may have other names");
    f("inequality_for_interval", policy_.inequality_for_interval, "accept -2 <= x <= 7 where the reference is [-2,7]");
  }
  void prepare() override {
    HONE_CHECK(precision_ >= 0 && precision_ <= 15, "precision is ", precision_, "; it is between 0 and 15");
    policy_.precision = static_cast<int>(precision_);
    sources_ = {.latex = false, .expression = false};
    for (const std::string& name : names_) {
      HONE_CHECK(name == "latex" || name == "expression", "sources: '", name, "' is neither latex nor expression");
      (name == "latex" ? sources_.latex : sources_.expression) = true;
    }
    HONE_CHECK(sources_.latex || sources_.expression, "sources: there are none");
  }
  Score score(const Task& task, const Completion& completion) const override {
    HONE_CHECK(!trimmed(task.answer).empty(), "reward math: task '", task.id, "' has no answer");
    const std::string expected = extract_reference(task.answer);
    const std::vector<std::string> readings = extract_answer(answer_part(completion.text), sources_);
    if (readings.empty()) return {.score = 0, .note = "no answer found"};
    for (const std::string& reading : readings)
      if (math_equal(expected, reading, policy_)) return {.score = 1};
    return {.score = 0, .note = "expected " + excerpt(expected) + ", got " + excerpt(readings.front())};
  }

 private:
  std::vector<std::string> names_ = {"latex", "expression"};
  int64_t precision_ = 6;
  MathPolicy policy_;
  MathSources sources_;
};

[[maybe_unused]] const bool added = rewards().add("math", [] { return std::unique_ptr<Reward>(new Math); });

}  // namespace

}  // namespace hone
