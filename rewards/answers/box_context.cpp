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

constexpr size_t longest_clause = 80;

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

constexpr std::string_view denials[] = {"not",    "never", "nor",  "neither", "cannot", "nothing", "none",
                                        "nobody", "nicht", "kein", "keine",   "pas",    "niet"};
// Words directly before a box, or before "of" and a box: "twice \boxed{18}", "half of \boxed{18}".
constexpr std::string_view multiples[] = {"twice", "thrice", "double", "triple", "half", "minus", "negative"};
// Text before one of these words does not apply to the box.
constexpr std::string_view clause_starts[] = {"so",    "therefore", "thus",    "hence", "but",     "then",
                                              "and",   "get",       "have",    "find",  "gives",   "obtain",
                                              "which", "that",      "because", "since", "conclude"};
constexpr std::string_view verdicts[] = {"wrong",      "incorrect", "false", "impossible",
                                         "extraneous", "invalid",   "not",   "never"};
constexpr std::string_view scalings[] = {"squared", "cubed", "factorial", "dozen", "times", "plus", "minus"};

std::string_view first_run(std::string_view text) {
  size_t end = text.starts_with('\\') ? 1 : 0;
  while (end < text.size() && is_letter(text[end])) ++end;
  return text.substr(0, end);
}

std::string_view without_space_before(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// True for "2\boxed{18}", "-\boxed{18}", "= -\boxed{18}", "x > \boxed{18}", "x \ne \boxed{18}". A minus after a term
// makes a sum, and authors box one part of it.
bool is_changed_on_left(std::string_view left, bool in_formula) {
  if (!in_formula && left.ends_with("- ")) return false;  // a bullet or a dash
  left = without_space_before(left);
  if (left.empty()) return false;
  if (is_digit(left.back()) || left.back() == '<') return true;
  if (left.back() == '>') return !left.ends_with("=>") && !left.ends_with("->") && left.size() > 1;
  for (const std::string_view relation : {"\\ne", "\\neq", "≠", "\\lt", "\\gt", "\\not=", "\\not ="})
    if (left.ends_with(relation)) return true;
  if (!left.ends_with('-') && !left.ends_with("−")) return false;
  left = without_space_before(left.substr(0, left.size() - (left.back() == '-' ? 1 : std::string_view("−").size())));
  return left.empty() || left.back() == '=' || left.back() == '&';
}

// True for "\boxed{18}^2", but not for the degrees of "\boxed{18}^\circ".
bool is_changed_on_right(std::string_view right) {
  if (!right.starts_with('^')) return false;
  right.remove_prefix(1);
  while (right.starts_with('{') || right.starts_with(' ')) right.remove_prefix(1);
  return !right.starts_with("\\circ") && !right.starts_with("°") && !right.starts_with("\\degree") &&
         !right.starts_with("o}") && !right.starts_with("\\text{o}");
}

// Returns the words of a clause in lower case. Characters of other scripts belong to words.
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

bool changes_box_value(std::string_view text, const MathSpan& box) {
  size_t begin = 0, end = text.size();
  for (const MathSpan& formula : find_formulas(text)) {
    if (formula.content_begin > box.begin || box.end > formula.content_end) continue;
    begin = formula.content_begin;
    end = formula.content_end;
  }
  const bool in_formula = begin > 0;
  if (!in_formula) begin = text.find_last_of('\n', box.begin) + 1;
  return is_changed_on_left(text.substr(begin, box.begin - begin), in_formula) ||
         is_changed_on_right(text.substr(box.end, end - box.end));
}

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
