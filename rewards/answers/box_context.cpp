#include "rewards/answers/box_context.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "rewards/answers/text.h"
#include "rewards/answers/units.h"
#include "rewards/answers/words.h"

namespace hone {

namespace {

constexpr size_t longest_context = 4096, longest_clause = 80;

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

// Commands that join what stands on their two sides, or apply to what follows. \le and \ge are bounds: see is_bound().
constexpr std::string_view operators[] = {
    "cdot", "times", "div",   "pm",    "mp",    "ast",    "sqrt",  "frac",     "dfrac",  "lt",    "gt",  "ne",
    "neq",  "not",   "log",   "ln",    "sin",   "cos",    "tan",   "pi",       "mu",     "phi",   "exp", "alpha",
    "beta", "gamma", "theta", "binom", "tfrac", "lambda", "infty", "overline", "lfloor", "lceil", "max", "min"};
constexpr std::string_view bounds[] = {"le", "ge", "leq", "geq", "leqslant", "geqslant"};
// Commands whose braces hold words or only change the looks.
constexpr std::string_view styles[] = {"text",  "mbox",  "textbf", "mathbf",       "mathrm",       "textrm",
                                       "fbox",  "boxed", "textit", "displaystyle", "boldsymbol",   "large",
                                       "Large", "left",  "right",  "textnormal",   "operatorname", "bf",
                                       "rm",    "quad",  "qquad",  "hspace",       "phantom",      "color"};
constexpr std::string_view signs[] = {"−", "×", "·", "⋅", "÷", "±", "√", "π", "≠", "²", "³"};
constexpr std::string_view bound_signs[] = {"≤", "≥"};
constexpr std::string_view spacing[] = {"\\,", "\\!", "\\;", "\\:", "\\ "};
constexpr std::string_view denials[] = {"not",    "never", "nor",  "neither", "cannot", "nothing", "none",
                                        "nobody", "nicht", "kein", "keine",   "pas",    "niet"};
// Directly before a box, or with "of": "twice \boxed{18}", "half of \boxed{18}".
constexpr std::string_view multiples[] = {"twice", "thrice", "double", "triple", "half", "minus", "negative"};
// What stands before these says nothing about the box.
constexpr std::string_view clause_starts[] = {"so",    "therefore", "thus",    "hence", "but",     "then",
                                              "and",   "get",       "have",    "find",  "gives",   "obtain",
                                              "which", "that",      "because", "since", "conclude"};
constexpr std::string_view verdicts[] = {"wrong",      "incorrect", "false", "impossible",
                                         "extraneous", "invalid",   "not",   "never"};
constexpr std::string_view scalings[] = {"squared", "cubed", "factorial", "dozen", "times", "plus", "minus"};

bool is_command_letter(char c) { return is_letter(c); }

// The letters that end a text, with the backslash before them.
std::string_view last_run(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && is_command_letter(text[begin - 1])) --begin;
  return text.substr(begin > 0 && text[begin - 1] == '\\' ? begin - 1 : begin);
}

std::string_view first_run(std::string_view text) {
  size_t end = text.starts_with('\\') ? 1 : 0;
  while (end < text.size() && is_command_letter(text[end])) ++end;
  return text.substr(0, end);
}

// Where the bracket that closes at the end of the text opens; npos if it does not.
size_t opening(std::string_view text, char open, char close) {
  int depth = 0;
  for (size_t i = text.size(); i-- > 0;) {
    if (text[i] == close) ++depth;
    if (text[i] == open && --depth == 0) return i;
  }
  return std::string_view::npos;
}

bool has_operand(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return is_digit(c); }) ||
         (text.size() <= 2 && std::all_of(text.begin(), text.end(), is_letter));
}

class BoxReader {
 public:
  BoxReader(std::string_view text, const MathSpan& box) : text_(text), box_(box) {
    for (const MathSpan& formula : find_formulas(text))
      if (formula.content_begin <= box.begin && box.end <= formula.content_end) formula_ = formula;
    in_formula_ = formula_.end > 0;
  }

  bool is_changed() {
    std::string_view left = in_formula_ ? text_.substr(formula_.content_begin, box_.begin - formula_.content_begin)
                                        : text_.substr(0, box_.begin);
    if (left.size() > longest_context) left.remove_prefix(left.size() - longest_context);
    bool spaced = false;
    if (changed_on_left(left, in_formula_, spaced)) return true;
    // "2$\boxed{18}$"
    const bool display =
        in_formula_ && text_[formula_.begin] != '$' ? true : text_.substr(formula_.begin).starts_with("$$");
    if (in_formula_ && left_is_open_ && !display && !spaced) {
      left = text_.substr(0, formula_.begin);
      if (!left.ends_with(' ') && !left.ends_with('\n') && changed_on_left(left, false, spaced)) return true;
    }
    std::string_view right =
        in_formula_ ? text_.substr(box_.end, formula_.content_end - box_.end) : text_.substr(box_.end);
    spaced = false;
    if (changed_on_right(right.substr(0, longest_context), in_formula_, spaced)) return true;
    if (!in_formula_ || !right_is_open_) return false;
    right = text_.substr(formula_.end, longest_context);
    spaced = display;
    return changed_on_right(right, false, spaced);
  }

 private:
  // -- what stands before
  bool changed_on_left(std::string_view left, bool formula, bool& spaced) {
    for (left_is_open_ = true;;) {
      left = without_spacing(left, spaced);
      if (left.empty()) return false;
      const char c = left.back();
      const std::string_view run = last_run(left);
      if (c == '{') {
        left.remove_suffix(1);
      } else if (c == '(' || c == '[') {
        ++brackets_;
        left.remove_suffix(1);
      } else if (run.size() > 1 && run[0] == '\\' && contains(styles, run.substr(1))) {
        left.remove_suffix(run.size());
      } else if (left.ends_with("\\$")) {
        left.remove_suffix(2);
      } else if (c == '"' || c == '`' || (c == '*' && is_emphasis(left)) || (c == '$' && !formula)) {
        left.remove_suffix(1);
      } else {
        break;
      }
    }
    left_is_open_ = false;
    return is_operand_or_sign(left, formula, spaced);
  }
  static std::string_view without_spacing(std::string_view left, bool& spaced) {
    for (;;) {
      const auto* const found = std::find_if(std::begin(spacing), std::end(spacing), [&](std::string_view one) {
        return left.ends_with(one) && !left.ends_with("\\\\ ");
      });
      if (found != std::end(spacing)) {
        left.remove_suffix(found->size());
      } else if (!left.empty() && (is_space(left.back()) || left.back() == '~' || left.back() == '&')) {
        // Another line is another statement.
        if (left.back() == '\n') return {};
        spaced = true;
        left.remove_suffix(1);
      } else {
        return left;
      }
    }
  }
  // "**\boxed{18}**"
  bool is_emphasis(std::string_view left) const {
    while (left.ends_with('*')) left.remove_suffix(1);
    const std::string_view right = text_.substr(box_.end, 8);
    return right.find('*') != std::string_view::npos && (left.empty() || !is_digit(left.back()));
  }
  bool is_operand_or_sign(std::string_view left, bool formula, bool spaced) const {
    const char c = left.back();
    const bool close = formula || !spaced;
    if (is_digit(c)) return close || starts_line(left);
    if (is_letter(c)) return is_factor(left, close);
    if (c == ')' || c == ']') return close && closes_factor(left, c == ')' ? '(' : '[', c, formula);
    if (c == '}') return close && closes_argument(left);
    if (c == '-') return is_minus(left, close, formula);
    if (c == '<' || c == '>') return !(left.ends_with("=>") || left.ends_with("->")) && !(c == '>' && left.size() == 1);
    if (c == '=') return ends_in_unequal(left);
    if (c == ',' || c == ';') return brackets_ > 0 || holds_open_bracket(left);
    if (c == ':') return left.size() >= 2 && is_digit(left[left.size() - 2]) && !spaced;
    if (c == '*') return left.size() >= 2 && (formula || is_digit(left[left.size() - 2]) || spaced);
    if (c == '+' || c == '/' || c == '^' || c == '_' || (c == '|' && formula)) return true;
    if (std::any_of(std::begin(bound_signs), std::end(bound_signs), [&](auto sign) { return left.ends_with(sign); }))
      return is_bound(left);
    return std::any_of(std::begin(signs), std::end(signs), [&](auto sign) { return left.ends_with(sign); });
  }
  bool starts_line(std::string_view left) const {
    while (!left.empty() && (is_digit(left.back()) || left.back() == '.' || left.back() == ',')) left.remove_suffix(1);
    left = trimmed(left.substr(left.find_last_of('\n') + 1));
    return left.empty() || left.ends_with('=') || left.ends_with('$') || left.ends_with('+') || left.ends_with('-');
  }
  // "x\boxed{18}", "\pi\boxed{18}"
  bool is_factor(std::string_view left, bool close) const {
    const std::string_view run = last_run(left);
    if (run[0] == '\\' && contains(bounds, run.substr(1))) return is_bound(left);
    if (run[0] == '\\') return contains(operators, run.substr(1));
    return close && run.size() <= 2 && (run.size() == 1 || math::is_product_of_letters(run)) && run != "is" &&
           run != "so" && run != "is" && run != "to" && run != "be" && run != "of" && run != "or";
  }
  bool closes_factor(std::string_view left, char open, char close, bool formula) const {
    const size_t begin = opening(left, open, close);
    if (begin == std::string_view::npos) return false;
    if (formula) return true;
    return has_operand(left.substr(begin + 1, left.size() - begin - 2));
  }
  bool closes_argument(std::string_view left) const {
    const size_t begin = opening(left, '{', '}');
    if (begin == std::string_view::npos) return false;
    const std::string_view before = left.substr(0, begin), run = last_run(before);
    if (before.ends_with('}')) return closes_argument(before);  // the second argument of \frac
    if (run.starts_with('\\'))
      return !contains(styles, run.substr(1)) && run != "\\begin" && run != "\\end" && run != "\\vspace" &&
             run != "\\arraystretch" && run != "\\tag";
    return has_operand(left.substr(begin));
  }
  bool is_minus(std::string_view left, bool close, bool formula) const {
    if (formula) return true;
    left.remove_suffix(1);
    const bool apart = left.ends_with(' ');
    const std::string_view before = trimmed(left.substr(left.find_last_of('\n') + 1));
    if (before.empty()) return close;  // "-\boxed{18}", but not the bullet "- \boxed{18}"
    if (is_letter(before.back())) return !apart && last_run(before).size() == 1;
    return is_digit(before.back()) || std::string_view(")}$=(").find(before.back()) != std::string_view::npos || close;
  }
  static bool ends_in_unequal(std::string_view left) {
    left.remove_suffix(1);
    // "6!=\boxed{720}" is a factorial.
    if (left.ends_with('!'))
      return left.size() < 2 || !(is_digit(left[left.size() - 2]) || left[left.size() - 2] == ')');
    if (left.ends_with("\\not ") || left.ends_with("\\not")) return true;
    return left.ends_with('!') || left.ends_with('<') || left.ends_with('>') || left.ends_with("\\ne");
  }
  static bool holds_open_bracket(std::string_view left) {
    int depth = 0;
    for (size_t i = left.size(); i-- > 0 && left[i] != '\n';) {
      if (left[i] == ')' || left[i] == ']') ++depth;
      if ((left[i] != '(' && left[i] != '[') || depth-- > 0) continue;
      if (i > 0 && left[i - 1] == '\\') return false;
      return std::none_of(left.begin() + static_cast<ptrdiff_t>(i), left.end(), is_letter);
    }
    return false;
  }
  // A bound alone, "x \ge \boxed{18}", is no value. Where words say more, it may be attained.
  bool is_bound(std::string_view) const {
    for (const std::string_view word : words_of(text_.substr(0, box_.begin)))
      if (word.size() >= 2 && std::all_of(word.begin(), word.end(), is_letter)) return false;
    return true;
  }

  // -- what stands after
  bool changed_on_right(std::string_view right, bool formula, bool& spaced) {
    right_is_open_ = true;
    for (;;) {
      if (right.empty()) return false;
      const std::string_view run = first_run(right);
      const char c = right[0];
      const auto* const found =
          std::find_if(std::begin(spacing), std::end(spacing), [&](auto one) { return right.starts_with(one); });
      if (found != std::end(spacing)) {
        right.remove_prefix(found->size());
      } else if (is_space(c) || c == '~' || c == '&') {
        if (c == '\n' && !formula) return false;
        spaced = true;
        right.remove_prefix(1);
      } else if (c == '}' || c == '"' || c == '`' || (c == '$' && !formula)) {
        right.remove_prefix(1);
      } else if ((c == ')' || c == ']') && brackets_ > 0) {
        --brackets_;
        right.remove_prefix(1);
      } else if (run == "\\right" || run == "\\left") {
        right.remove_prefix(run.size());
      } else if (c == '{' && right.starts_with("{,}")) {
        return true;
      } else {
        break;
      }
    }
    right_is_open_ = false;
    return goes_on(right, formula, spaced);
  }
  bool goes_on(std::string_view right, bool formula, bool spaced) const {
    const char c = right[0];
    const bool close = formula || !spaced;
    const std::string_view run = first_run(right);
    if (is_digit(c)) return close && holds_digit();
    if (is_letter(c)) return close && is_variable(run, spaced);
    if (c == '\\') return is_operator(right, run);
    if (c == '^') return !is_degree(right.substr(1));
    if (c == '!') return formula && !right.starts_with("!=");
    if (c == ',' || c == ';') return brackets_ > 0;
    if (c == '(' || c == '[')
      return close && right.size() > 1 && has_operand(right.substr(1, 1)) && !is_word(right.substr(1));
    if (c == ':' || c == '.') return right.size() > 1 && is_digit(right[1]);
    if (c == '|') return formula;
    if (c == '?') return true;
    if (std::any_of(std::begin(signs), std::end(signs), [&](auto sign) { return right.starts_with(sign); }))
      return true;
    if (c == '*' && !formula) {
      const size_t next = right.find_first_not_of('*');
      return next != std::string_view::npos && spaced ? operand_follows(right.substr(next))
                                                      : next != std::string_view::npos && is_digit(right[next]);
    }
    if (std::string_view("+-*/<>").find(c) == std::string_view::npos) return false;
    return formula || operand_follows(right.substr(1));
  }
  bool holds_digit() const {
    const std::string_view content = box_.content(text_);
    return std::any_of(content.begin(), content.end(), is_digit);
  }
  static bool is_word(std::string_view text) {
    const std::string_view run = first_run(text);
    return run.size() >= 2 && run[0] != '\\';
  }
  static bool operand_follows(std::string_view text) {
    text = trimmed(text);
    if (text.empty()) return false;
    if (is_letter(text[0])) return first_run(text).size() == 1 && text[0] != 'a' && text[0] != 'I';
    return is_digit(text[0]) || text[0] == '\\' || text[0] == '$' || text[0] == '(';
  }
  static bool is_variable(std::string_view run, bool spaced) {
    if (math::is_unit(run) ||
        (spaced && (run == "m" || run == "g" || run == "s" || run == "h" || run == "L" || run == "a")))
      return false;
    return run.size() == 1 || (run.size() == 2 && math::is_product_of_letters(run) && run != "is" && run != "in" &&
                               run != "or" && run != "by" && run != "at" && run != "so" && run != "as" && run != "to");
  }
  static bool is_operator(std::string_view right, std::string_view run) {
    if (run.size() <= 1) return right.starts_with("\\{");
    // \frac{\text{miles}}{\text{day}} is a unit.
    if (run.ends_with("frac") && right.find("\\text") < right.find('}')) return false;
    return contains(operators, run.substr(1)) || contains(bounds, run.substr(1));
  }
  static bool is_degree(std::string_view exponent) {
    while (exponent.starts_with('{') || exponent.starts_with(' ')) exponent.remove_prefix(1);
    return exponent.starts_with("\\circ") || exponent.starts_with("°") || exponent.starts_with("\\degree") ||
           exponent.starts_with("o}") || exponent.starts_with("\\text{o}");
  }

  std::string_view text_;
  MathSpan box_, formula_;
  bool in_formula_ = false, left_is_open_ = false, right_is_open_ = false;
  int brackets_ = 0;
};

// The words of a clause, in lower case; signs of other scripts belong to them.
std::vector<std::string> clause_words(std::string_view clause) {
  std::vector<std::string> out;
  for (size_t i = 0; i < clause.size();) {
    size_t end = i;
    const auto in_word = [&](char c) { return is_letter(c) || c == '\'' || static_cast<unsigned char>(c) >= 0x80; };
    const bool command = clause[i] == '\\';
    if (command) ++end;
    while (end < clause.size() && in_word(clause[end])) ++end;
    if (end > i && !command) out.push_back(lower(clause.substr(i, end - i)));
    i = std::max(end, i + 1);
  }
  return out;
}

bool is_negation(const std::string& word) {
  return contains(denials, word) || word.ends_with("n't") || word.ends_with("n’t") ||
         word.find("不") != std::string::npos || word.find("非") != std::string::npos;
}

}  // namespace

bool changes_box_value(std::string_view text, const MathSpan& box) { return BoxReader(text, box).is_changed(); }

bool denies_box(std::string_view text, const MathSpan& box) {
  std::string_view before = text.substr(0, box.begin), after = text.substr(box.end, longest_clause);
  if (before.size() > longest_clause) before.remove_prefix(before.size() - longest_clause);
  if (const size_t stop = before.find_last_of(",;:.?!\n0123456789=}"); stop != std::string_view::npos)
    before.remove_prefix(stop + 1);
  std::vector<std::string> words = clause_words(before);
  constexpr size_t most_words = 5;
  const bool of = !words.empty() && words.back() == "of";
  if (words.size() > (of ? 1U : 0U) && contains(multiples, words[words.size() - (of ? 2 : 1)])) return true;
  for (size_t i = words.size(); i-- > 0 && i + most_words >= words.size();) {
    if (contains(clause_starts, words[i])) break;
    if (is_negation(words[i])) return true;
  }
  after = after.substr(0, after.find_first_of(",;.!\n("));
  words = clause_words(after);
  if (words.empty()) return false;
  const bool counts = words[0] != "times" && words[0] != "plus" && words[0] != "minus";
  if (contains(scalings, words[0]) && (counts || std::any_of(after.begin(), after.end(), is_digit))) return true;
  if (words[0] == "or" || words[0] == "oder" || words[0] == "ou") {
    if (after.find("\\boxed") != std::string_view::npos) return false;  // the boxes are one list
    return std::any_of(after.begin(), after.end(), is_digit) || (words.size() >= 2 && words[1] == "not");
  }
  for (size_t i = 0; i < std::min(words.size(), size_t{3}); ++i)
    if (i == 0
            ? is_negation(words[0]) && words[0] != "not" && words[0] != "half" && words[0] != "double"
            : contains(verdicts, words[i]) && (words[i - 1] == "is" || words[i - 1] == "was" || words[i - 1] == "are"))
      return true;
  return false;
}

std::string with_multiplier(std::string content, std::string_view after) {
  after = after.substr(0, longest_clause);
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view mark : {"$", "\\)", "\\]", "\\,", "\\ ", "\\text{", "\\mbox{", "~", " ", "{"})
      if (after.starts_with(mark)) {
        after.remove_prefix(mark.size());
        found = true;
      }
  }
  const std::string_view word = first_run(after);
  return math::multiplier_zeros(word) > 0 ? concat(content, " ", word) : std::move(content);
}

}  // namespace hone
