// The "choice" reward: 1 if the letter that the completion chooses (choice_text.h) is the answer's letter.
#include "rewards/answers/choice_text.h"
#include "rewards/answers/text.h"
#include "rewards/reward.h"

namespace hone {

namespace {

class Choice : public Reward {
 public:
  void fields(Fields& f) override { f("letters", letters_, "the option letters"); }
  void prepare() override {
    HONE_CHECK(!letters_.empty(), "letters is empty; set the option letters");
    for (const char c : letters_)
      HONE_CHECK(is_letter(c) && to_lower(c) != c, "letters: '", c, "' is not a capital letter");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    const auto expected = choice_answer(task.answer, letters_);
    HONE_CHECK(expected, "reward choice: task '", task.id, "': the answer '", excerpt(task.answer),
               "' is not one of the letters ", letters_);
    const auto given = choice_answer(completion.text, letters_);
    if (!given) return {.score = 0, .note = "no choice found"};
    const bool right = *given == *expected;
    return {.score = right ? 1.0 : 0.0, .note = right ? "" : concat("expected ", *expected, ", got ", *given)};
  }
  bool reads_answers(const Task&) const override { return true; }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    const auto given = choice_answer(completion.text, letters_);
    return given ? std::optional(std::string(1, *given)) : std::nullopt;
  }

 private:
  std::string letters_ = "ABCD";
};

[[maybe_unused]] const bool added = rewards().add("choice", [] { return std::unique_ptr<Reward>(new Choice); });

}  // namespace

}  // namespace hone
