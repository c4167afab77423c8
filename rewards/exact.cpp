// The completion is the answer, character for character.
#include "rewards/reward.h"
#include "rewards/text.h"

namespace hone {

namespace {

class Exact : public Reward {
 public:
  void fields(Fields& f) override {
    f("trim", trim_, "spaces at either end of completion and answer do not count");
    f("ignore_case", ignore_case_, "A and a are the same (ASCII)");
  }
  Score score(const Task& task, const Completion& completion) const override {
    const std::string_view given = trim_ ? trimmed(completion.text) : completion.text, expected = trim_ ? trimmed(task.answer) : task.answer;
    const bool right = given == expected || (ignore_case_ && given.size() == expected.size() && lower(given) == lower(expected));
    return {.score = right ? 1.0 : 0.0, .note = right ? "" : "expected '" + excerpt(expected) + "'"};
  }

 private:
  bool trim_ = true, ignore_case_ = false;
};

[[maybe_unused]] const bool added = rewards().add("exact", [] { return std::unique_ptr<Reward>(new Exact); });

}  // namespace

}  // namespace hone
