// The "exact" reward: 1 if the completion equals the answer character for character.
#include "rewards/answers/text.h"
#include "rewards/reward.h"

namespace hone {

namespace {

class Exact : public Reward {
 public:
  void fields(Fields& f) override {
    f("trim", trim_, "ignore white space at both ends of completion and answer");
    f("ignore_case", ignore_case_, "compare without case (ASCII)");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    const std::string_view given = trim_ ? trimmed(completion.text) : completion.text,
                           expected = trim_ ? trimmed(task.answer) : task.answer;
    const bool right = same(given, expected);
    return {.score = right ? 1.0 : 0.0, .note = right ? "" : "expected '" + excerpt(expected) + "'"};
  }
  bool reads_answers(const Task&) const override { return true; }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    const std::string_view given = trim_ ? trimmed(completion.text) : completion.text;
    return given.empty() ? std::nullopt : std::optional<std::string>(given);
  }
  bool same_answers(const Task&, const std::string& a, const std::string& b) const override { return same(a, b); }

 private:
  bool same(std::string_view a, std::string_view b) const {
    return a == b || (ignore_case_ && a.size() == b.size() && lower(a) == lower(b));
  }

  bool trim_ = true, ignore_case_ = false;
};

[[maybe_unused]] const bool added = rewards().add("exact", [] { return std::unique_ptr<Reward>(new Exact); });

}  // namespace

}  // namespace hone
