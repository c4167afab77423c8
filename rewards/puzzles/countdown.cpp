// The "countdown" reward: 1 for an expression over some of the given numbers, each used at most once, with + - * / and
// brackets, that equals the target. A small parser evaluates the completion's expression in exact fractions. parts:
// format (an expression that uses the numbers as allowed), answer. The rule and data are TinyZero's (Pan 2025).
// TinyZero requires every number; use_all does too.
#include <algorithm>
#include <charconv>
#include <utility>

#include "rewards/answers/answer_text.h"
#include "rewards/answers/rational.h"
#include "rewards/answers/text.h"
#include "rewards/reward.h"

namespace hone {

namespace {

constexpr size_t longest_expression = 1024;
constexpr int deepest = 32;  // nesting of brackets and signs

// expression = term {(+|-) term};  term = factor {(*|/) factor};  factor = integer | - factor | ( expression )
class Expression {
 public:
  explicit Expression(std::string_view text) : text_(text) {}
  // Returns the value. Returns nothing if the text is not an expression, divides by zero or overflows 64 bits; `error`
  // then says which.
  std::optional<Rational> value() {
    const auto out = sum();
    spaces();
    if (error.empty() && at_ < text_.size()) error = "not an expression at '" + excerpt(text_.substr(at_)) + "'";
    return error.empty() ? out : std::nullopt;
  }
  std::vector<int64_t> numbers;  // in order of appearance
  std::string error;

 private:
  void spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  char peek() {
    spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  std::optional<Rational> wrong(std::string what) {
    if (error.empty()) error = std::move(what);
    return std::nullopt;
  }
  std::optional<Rational> combined(char op, const std::optional<Rational>& a, const std::optional<Rational>& b) {
    if (!a || !b) return std::nullopt;
    const auto out = apply(op, *a, *b);
    return out ? out : wrong(op == '/' && b->top == 0 ? "a division by zero" : "the numbers grow too large");
  }
  std::optional<Rational> sum() {
    auto left = product();
    while (left && (peek() == '+' || peek() == '-')) {
      const char op = text_[at_++];
      left = combined(op, left, product());
    }
    return left;
  }
  std::optional<Rational> product() {
    auto left = factor();
    while (left && (peek() == '*' || peek() == '/')) {
      const char op = text_[at_++];
      left = combined(op, left, factor());
    }
    return left;
  }
  std::optional<Rational> factor() {
    const char c = peek();
    if (is_digit(c)) return integer();
    if ((c != '(' && c != '-') || ++depth_ > deepest)
      return wrong("not an expression at '" + excerpt(text_.substr(std::min(at_, text_.size()))) + "'");
    ++at_;
    auto out = c == '-' ? combined('-', Rational{}, factor()) : sum();
    if (c == '(' && out && peek() != ')') return wrong("an open bracket");
    if (c == '(' && out) ++at_;
    --depth_;
    return out;
  }
  std::optional<Rational> integer() {
    int64_t value = 0;
    const auto [stop, failure] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (failure != std::errc()) return wrong("the numbers grow too large");
    at_ = static_cast<size_t>(stop - text_.data());
    numbers.push_back(value);
    return Rational{value, 1};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

// Normalizes operators: LaTeX and typographic signs become + - * /.
std::string plain(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> spellings[] = {
      {"\\times", "*"}, {"\\cdot", "*"}, {"\\div", "/"}, {"\\left", ""}, {"\\right", ""},
      {"×", "*"},       {"·", "*"},      {"÷", "/"},     {"−", "-"},     {"$", ""}};
  std::string out;
  while (!text.empty()) {
    const auto found = std::find_if(std::begin(spellings), std::end(spellings),
                                    [&](const auto& s) { return text.starts_with(s.first); });
    const bool known = found != std::end(spellings);
    out += known ? found->second : text.substr(0, 1);
    text.remove_prefix(known ? found->first.size() : 1);
  }
  return out;
}

class Countdown : public Reward {
 public:
  void fields(Fields& f) override {
    f("numbers", numbers_, "column with the list of given integers");
    f("target", target_, "column with the target integer");
    f("use_all", use_all_, "every number must be used exactly once; false: at most once");
    f("format_score", format_score_, "score of an expression that uses the numbers as allowed but misses the target");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    const std::string where = "reward countdown: task '" + task.id + "'";
    std::vector<int64_t> given;
    for (const Json& number : task.columns.at(numbers_, where).as_array(where + ": " + numbers_))
      given.push_back(number.as_int(where + ": " + numbers_));
    const int64_t target = task.columns.at(target_, where).as_int(where + ": " + target_);
    std::optional<Rational> value;
    std::string note = judge(completion.text, given, value);
    const bool formed = note.empty(), right = formed && *value == Rational{target, 1};
    if (formed && !right)
      note = concat("expected ", target, ", got ", value->top, value->bottom == 1 ? "" : concat("/", value->bottom));
    return {.score = right    ? 1.0
                     : formed ? format_score_
                              : 0.0,
            .note = std::move(note),
            .parts = {{"answer", right ? 1.0 : 0.0}, {"format", formed ? 1.0 : 0.0}}};
  }

 private:
  // Returns what is wrong with the final expression of a completion, or "" and its value. "= 98" after the expression
  // must be its value.
  std::string judge(std::string_view text, std::vector<int64_t> given, std::optional<Rational>& value) const {
    std::string_view answer = final_answer(text);
    if (const size_t line = answer.rfind('\n'); line != std::string_view::npos) answer = trimmed(answer.substr(line));
    if (answer.empty()) return "no answer found";
    if (answer.size() > longest_expression) return "too long for an expression";
    const std::string written = plain(answer);
    const std::vector<std::string_view> sides = split(written, "=");
    Expression left(sides[0]);
    value = left.value();
    if (!value) return left.error;
    for (size_t i = 1; i < sides.size(); ++i) {
      Expression side(sides[i]);
      if (side.value() != value || side.numbers.size() != 1) return "what follows '=' is not the expression's value";
    }
    for (const int64_t number : left.numbers) {
      const auto found = std::find(given.begin(), given.end(), number);
      if (found == given.end())
        return concat(number, " is not there to be used",
                      std::count(left.numbers.begin(), left.numbers.end(), number) > 1 ? " again" : "");
      given.erase(found);
    }
    return use_all_ && !given.empty() ? concat(given.front(), " is not used") : "";
  }

  std::string numbers_ = "nums", target_ = "target";
  bool use_all_ = false;
  double format_score_ = 0;
};

[[maybe_unused]] const bool added = rewards().add("countdown", [] { return std::unique_ptr<Reward>(new Countdown); });

}  // namespace

}  // namespace hone
