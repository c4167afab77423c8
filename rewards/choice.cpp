// The letter the completion chooses is the answer's. Looked for, in this order: the completion is the letter; \boxed{B}; after the last
// "answer is" or "answer:"; a completion that starts with "(B)" or "B.".
#include <optional>

#include "rewards/answer_text.h"
#include "rewards/reward.h"
#include "rewards/text.h"

namespace hone {

namespace {

class Choice : public Reward {
 public:
  void fields(Fields& f) override { f("letters", letters_, "the letters there are to choose from"); }
  void prepare() override {
    HONE_CHECK(!letters_.empty(), "letters: there is nothing to choose from");
    for (const char c : letters_) HONE_CHECK(is_letter(c) && to_lower(c) != c, "letters: '", c, "' is not a capital letter");
  }
  Score score(const Task& task, const Completion& completion) const override {
    const auto expected = letter_at(trimmed(task.answer), true);
    HONE_CHECK(expected, "reward choice: task '", task.id, "': the answer '", excerpt(task.answer), "' is none of the letters ", letters_);
    const auto given = find(completion.text);
    if (!given) return {.score = 0, .note = "no choice found"};
    const bool right = *given == *expected;
    return {.score = right ? 1.0 : 0.0, .note = right ? "" : concat("expected ", *expected, ", got ", *given)};
  }
  bool reads_answers(const Task&) const override { return true; }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    const auto given = find(completion.text);
    return given ? std::optional(std::string(1, *given)) : std::nullopt;
  }

 private:
  // The letter that `text` starts with, in brackets, bold or \text{} perhaps. whole: nothing but a full stop follows.
  std::optional<char> letter_at(std::string_view text, bool whole, bool any_case = true) const {
    const auto skip = [&](std::string_view what) {
      if (!text.starts_with(what)) return false;
      text.remove_prefix(what.size());
      return true;
    };
    while (skip(" ") || skip("\n") || skip("(") || skip("*") || skip("$") || skip(":") || skip("\\boxed{") || skip("\\text{") || skip("\\textbf{") ||
           skip("\\mathrm{") || skip("option ") || skip("Option ") || skip("choice ") || skip("Choice ")) {}
    if (text.empty()) return std::nullopt;
    const char letter = any_case && is_letter(text[0]) ? to_upper(text[0]) : text[0];
    if (letters_.find(letter) == std::string::npos) return std::nullopt;
    text.remove_prefix(1);
    if (!whole)
      return text.empty() || !(is_letter(text[0]) || is_digit(text[0]) || text[0] == '\'' || text[0] == '_') ? std::optional(letter) : std::nullopt;
    while (skip(")") || skip("*") || skip("$") || skip("}") || skip(".") || skip(" ")) {}
    return text.empty() ? std::optional(letter) : std::nullopt;
  }

  std::optional<char> find(std::string_view text) const {
    text = trimmed(answer_part(text));
    if (text.size() <= 32)
      if (const auto letter = letter_at(text, true)) return letter;
    const size_t box = text.rfind("\\boxed{");
    if (box != std::string_view::npos) return letter_at(text.substr(box), false);
    const size_t at = end_of_last(text, {"answer is", "answer:", "answer**:", "choice is", "option is"});
    // A sentence's "a" is no choice, so a small letter counts only where it is all there is.
    if (at != std::string_view::npos) return letter_at(text.substr(at), false, false);
    if (text.starts_with('(') || (text.size() > 1 && (text[1] == '.' || text[1] == ')' || text[1] == ':' || text[1] == '\n')))
      return letter_at(text, false, false);
    return std::nullopt;
  }

  std::string letters_ = "ABCD";
};

[[maybe_unused]] const bool added = rewards().add("choice", [] { return std::unique_ptr<Reward>(new Choice); });

}  // namespace

}  // namespace hone
