// The "number" reward: 1 if the number of the completion equals the answer's. It reads the last box, else the number
// after a marker, else the last number of the completion. A fraction counts as its value. A number inside a power, a
// range, a ratio or another expression does not count. The task's answer may be a number or a worked solution that ends
// in "#### 18" (GSM8K).
#include <cmath>

#include "rewards/answers/text.h"
#include "rewards/math/number_answer.h"
#include "rewards/reward.h"

namespace hone {

namespace {

class Number : public Reward {
 public:
  void fields(Fields& f) override {
    f("markers", markers_,
      "texts before the answer, in order of preference (any case); the number after the last occurrence of the first "
      "one found counts");
    f("require_marker", require_marker_, "a completion without a marker has no answer; false: its last number counts");
    f("tolerance", tolerance_, "maximum absolute error");
    f("relative_tolerance", relative_tolerance_, "maximum error relative to the answer");
  }
  void prepare() override {
    HONE_CHECK(tolerance_ >= 0 && relative_tolerance_ >= 0, "tolerance (", tolerance_, ") and relative_tolerance (",
               relative_tolerance_, ") must be 0 or more");
    for (std::string& marker : markers_) {
      HONE_CHECK(!marker.empty(), "markers has an empty text; remove it");
      marker = lower(marker);
    }
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    const auto expected = number_answer(task.answer, {"####"});
    HONE_CHECK(expected, "reward number: task '", task.id, "' has no number in its answer '", excerpt(task.answer),
               "'");
    const auto given = number_answer(completion.text, markers_, require_marker_);
    if (!given) return {.score = 0, .note = "no number found"};
    const bool right = agree(*expected, *given);
    return {.score = right ? 1.0 : 0.0,
            .note = right ? "" : "expected " + excerpt(expected->digits) + ", got " + excerpt(given->digits)};
  }
  bool reads_answers(const Task&) const override { return true; }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    const auto given = number_answer(completion.text, markers_, require_marker_);
    return given ? std::optional(given->digits) : std::nullopt;
  }
  bool same_answers(const Task&, const std::string& a, const std::string& b) const override {
    const auto first = number_answer(a, {}), second = number_answer(b, {});
    return first && second && agree(*first, *second);
  }

 private:
  bool agree(const NumberText& expected, const NumberText& given) const {
    const double allowed = std::max(tolerance_, relative_tolerance_ * std::fabs(expected.value));
    return given.digits == expected.digits || (allowed > 0 && std::fabs(given.value - expected.value) <= allowed);
  }

  std::vector<std::string> markers_ = {"####", "answer is", "answer:", "答案是", "答案为", "答案:", "答案："};
  bool require_marker_ = false;
  double tolerance_ = 0, relative_tolerance_ = 0;
};

[[maybe_unused]] const bool added = rewards().add("number", [] { return std::unique_ptr<Reward>(new Number); });

}  // namespace

}  // namespace hone
