// The "option_letter" reward: the letter of MMLU-Pro's options that its evaluation extracts. Three patterns in order:
// "answer is (X)"; the last "Answer: X" of the first line with one; the last capital letter that stands alone.
#include <optional>

#include "core/text/unicode/bounded_regex.h"
#include "rewards/answers/text.h"
#include "rewards/reward.h"

namespace hone {

namespace {

class OptionLetter : public Reward {
 public:
  void fields(Fields& f) override {
    f("letters", letters_, "the letters of the options, in capitals");
    f("first_pattern_only", first_pattern_only_, "read \"answer is (X)\" alone, as lm-evaluation-harness does");
  }
  void prepare() override {
    HONE_CHECK(!letters_.empty() && letters_.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos,
               "letters is '", letters_, "'; it must be capital letters, as \"ABCDEFGHIJ\"");
    const std::string option = "([" + letters_ + "])";
    constexpr BoundedRegexOptions limits{.step_limit = 20'000'000};
    patterns_.emplace_back("answer is \\(?" + option + "\\)?", limits);
    if (first_pattern_only_) return;
    patterns_.emplace_back(".*[aA]nswer:\\s*" + option, limits);
    alone_.emplace("\\b" + option + "\\b", limits);
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    const std::optional<std::string> found = letter_of(completion.text);
    if (!found) return {.note = "no answer found"};
    const std::string_view expected = trimmed(task.answer);
    return {.score = *found == expected ? 1.0 : 0.0,
            .note = *found == expected ? "" : "expected " + excerpt(expected) + ", got " + *found};
  }
  bool reads_answers(const Task&) const override { return true; }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    return letter_of(completion.text);
  }

 private:
  std::optional<std::string> letter_of(std::string_view text) const {
    std::optional<std::string> out;
    for (const BoundedRegex& pattern : patterns_) {
      pattern.each(text, [&](std::span<const std::string_view> groups) {
        if (!out) out = std::string(groups[1]);
      });
      if (out) return out;
    }
    if (alone_) alone_->each(text, [&](std::span<const std::string_view> groups) { out = std::string(groups[1]); });
    return out;
  }

  std::string letters_ = "ABCDEFGHIJ";
  bool first_pattern_only_ = false;
  std::vector<BoundedRegex> patterns_;
  std::optional<BoundedRegex> alone_;
};

[[maybe_unused]] const bool added =
    rewards().add("option_letter", [] { return std::unique_ptr<Reward>(new OptionLetter); });

}  // namespace

}  // namespace hone
