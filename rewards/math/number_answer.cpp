#include "rewards/math/number_answer.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "core/base/check.h"
#include "rewards/answers/answer_text.h"
#include "rewards/answers/box_context.h"
#include "rewards/answers/reading.h"
#include "rewards/answers/spans.h"
#include "rewards/answers/statement.h"
#include "rewards/answers/text.h"
#include "rewards/answers/words.h"
#include "rewards/math/compare.h"

namespace hone {

namespace {

using Kind = StatementPart::Kind;

constexpr size_t most_boxes = 64, longest_line = 4096, longest_integer = 15;

NumberText number_of_digits(std::string digits) {
  NumberText out;
  std::from_chars(digits.data(), digits.data() + digits.size(), out.value);
  out.digits = std::move(digits);
  return out;
}

// Multiplies by 10^exponent exactly.
std::string shifted(std::string_view digits, int64_t exponent) {
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  const size_t point = digits.find('.');
  std::string whole(digits.substr(0, point)),
      fraction(point == std::string_view::npos ? std::string_view() : digits.substr(point + 1));
  for (; exponent > 0; --exponent) {
    whole += fraction.empty() ? '0' : fraction.front();
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  return canonical_digits((negative ? "-" : "") + whole + "." + fraction);
}

// top / bottom in lowest terms, as a decimal if it is finite, else as "5/3".
std::optional<NumberText> fraction_value(int64_t top, int64_t bottom) {
  if (bottom == 0) return std::nullopt;
  const int64_t divisor = std::gcd(top, bottom);
  top /= divisor;
  bottom /= divisor;
  int64_t rest = bottom;
  while (rest % 2 == 0) rest /= 2;
  while (rest % 5 == 0) rest /= 5;
  if (rest != 1) {
    NumberText out{.digits = std::to_string(top) + "/" + std::to_string(bottom)};
    out.value = static_cast<double>(top) / static_cast<double>(bottom);
    return out;
  }
  // Long division terminates here.
  std::string digits = top < 0 ? "-" : "";
  int64_t remainder = std::abs(top);
  digits += std::to_string(remainder / bottom) + ".";
  while ((remainder %= bottom) != 0) {
    remainder *= 10;
    digits += static_cast<char>('0' + remainder / bottom);
  }
  return number_of_digits(canonical_digits(digits));
}

std::optional<int64_t> integer(std::string_view text) {
  int64_t out = 0;
  if (text.empty() || text.size() > longest_integer || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

// Parses "5/2" and "1 1/2" without a sign.
std::optional<NumberText> plain_fraction(std::string_view text, bool negative) {
  const size_t slash = text.find('/');
  std::string_view top = trimmed(text.substr(0, slash)), bottom = trimmed(text.substr(slash + 1));
  std::optional<int64_t> whole = 0;
  if (const size_t space = top.find_last_of(' '); space != std::string_view::npos) {
    whole = integer(trimmed(top.substr(0, space)));
    top = top.substr(space + 1);
  }
  const auto over = integer(top), under = integer(bottom);
  if (!whole || !over || !under || *whole > 1'000'000'000 || *under > 1'000'000 || *over > 1'000'000'000'000)
    return std::nullopt;
  const int64_t sum = *whole * *under + *over;
  return fraction_value(negative ? -sum : sum, *under);
}

// Commands that enclose an entire value.
constexpr std::string_view wrappers[] = {"\\boxed{", "\\fbox{", "\\text{", "\\textbf{", "\\mathbf{", "\\mathrm{"};
constexpr std::string_view scaling[] = {"dozen", "squared", "cubed", "factorial"};  // after a value
constexpr std::string_view joining[] = {"or", "to",   "through", "and", "vs", "versus", "alternatively",
                                        "v",  "oder", "ou",      "или", "或", "或者",   "和",
                                        "到", "至"};
constexpr std::string_view alternatives[] = {"or", "alternatively"}, after_or[] = {"more", "less", "fewer"};
// Words before a number that only says where or when: "In 2020, 18 were left".
constexpr std::string_view before_details[] = {"in", "of", "on", "by", "after", "from", "at", "since", "until", "with"};
constexpr std::string_view before_lists[] = {"is",        "are",    "was",   "were",   "be",      "equals",
                                             "get",       "either", "gives", "answer", "answers", "values",
                                             "solutions", "roots",  "both",  "numbers"};
constexpr std::string_view suppositions[] = {"let",      "suppose", "supposing", "assume",   "assuming", "given",
                                             "say",      "if",      "when",      "whenever", "where",    "unless",
                                             "provided", "let's",   "imagine",   "pretend",  "consider", "try",
                                             "test",     "doubt",   "假设",      "若",       "如果",     "设"};
constexpr std::string_view continuations[] = {"of",   "by",  "times", "plus", "minus",
                                              "over", "and", "into",  "per",  "for"};
constexpr std::string_view clause_starts[] = {"so", "and", "but", "thus", "hence", "therefore", "because", "since"};
constexpr std::string_view conditions[] = {"for", "at", "with", "because", "since"};  // before "x = 5"
constexpr std::string_view statements[] = {"get",   "gets", "have", "has",   "makes", "make",  "sells",
                                           "earns", "pays", "left", "find",  "we",    "he",    "she",
                                           "they",  "then", "see",  "needs", "it",    "equals"};
constexpr std::string_view multiples[] = {"twice", "double", "triple", "minus"};  // before one

// A value in a sentence with one of these words is not an answer.
constexpr std::string_view doubts[] = {"doubt",   "refuse", "maybe",    "perhaps", "possibly", "might",
                                       "neither", "nor",    "anything", "cannot",  "ruled"};
constexpr std::string_view verdicts[] = {"wrong",   "incorrect", "false", "impossible", "extraneous",
                                         "invalid", "too",       "close", "nearly",     "almost"};
constexpr std::string_view before_verdicts[] = {"is", "are", "was", "be", "a", "the", "it's", "that's"};
constexpr std::string_view with_negation[] = {"answer", "right", "correct", "solution",
                                              "work",   "works", "equal",   "true"};

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

// Removes dollar signs, LaTeX spaces, and brackets, commands or a percent sign around the entire text.
std::string_view unwrapped(std::string_view text) {
  for (;;) {
    text = trimmed(text);
    if (text.ends_with('.')) text.remove_suffix(1);
    const auto* const wrapper = std::find_if(std::begin(wrappers), std::end(wrappers),
                                             [&](std::string_view one) { return text.starts_with(one); });
    if (wrapper != std::end(wrappers) && text.find('}') == text.find_last_not_of('}') + 1 && text.ends_with('}')) {
      text = text.substr(wrapper->size(), text.size() - wrapper->size() - 1);
      continue;
    }
    if (text.ends_with('%')) text.remove_suffix(text.ends_with("\\%") ? 2 : 1);
    const bool pair = text.size() >= 2 &&
                      ((text.front() == '(' && text.back() == ')') || (text.front() == '{' && text.back() == '}') ||
                       (text.front() == '$' && text.back() == '$'));
    if (pair)
      text = text.substr(1, text.size() - 2);
    else
      return trimmed(text);
  }
}

// Units that may follow a number in a formula: "\text{ cm}", "^\circ".
bool is_unit(std::string_view text) {
  while (text.starts_with("\\,") || text.starts_with("\\ ") || text.starts_with("~"))
    text = trimmed(text.substr(text.starts_with("~") ? 1 : 2));
  if (text.empty() || text == "°" || text == "^\\circ" || text == "^{\\circ}") return true;
  const bool words = text.starts_with("\\text{") || text.starts_with("\\mathrm{") || text.starts_with("\\textbf{");
  return words && text.find('}') == text.size() - 1 && text.find_first_of("0123456789") == std::string_view::npos;
}

bool holds_inequality(std::string_view text) {
  constexpr std::string_view marks[] = {"<", ">", "!",    "≠",    "≤",    "≥",     "≈",
                                        "~", "≡", "\\ne", "\\le", "\\ge", "\\not", "\\equiv"};
  return std::any_of(std::begin(marks), std::end(marks),
                     [&](std::string_view mark) { return text.find(mark) != std::string_view::npos; });
}

bool holds_digit(std::string_view text) { return std::any_of(text.begin(), text.end(), is_digit); }

bool is_number(std::string_view text, const StatementPart& part) {
  return part.kind == Kind::expression && holds_digit(text.substr(part.begin, part.end - part.begin));
}

bool holds_one_number(std::string_view text, const StatementPart& part) {
  const std::string_view value = text.substr(part.begin, part.end - part.begin);
  return value.find_first_not_of("0123456789.,") == std::string_view::npos;
}

// True for two values without words between them: "17, 18", "17 18", "x = 17, y = 18". "In 2020, 18 were left" is one
// value.
bool is_listed(std::string_view text, const std::vector<StatementPart>& parts, size_t at) {
  const auto touches = [&](size_t left, size_t right) {
    const std::string_view gap = text.substr(parts[left].end, parts[right].begin - parts[left].end);
    return gap.find_first_not_of(" ,;|~/&$\\*") == std::string_view::npos;
  };
  for (size_t i = at; i-- > 0;) {
    if (parts[i].kind == Kind::comma) continue;
    if (!is_number(text, parts[i]) || !touches(i, at)) break;
    if (i == 0 || parts[i - 1].kind != Kind::word) return true;
    const std::string& before = parts[i - 1].word;
    return !contains(before_details, before) && (at + 1 == parts.size() || contains(before_lists, before));
  }
  for (size_t i = at + 1; i < parts.size(); ++i) {
    if (parts[i].kind == Kind::comma) continue;
    return is_number(text, parts[i]) && touches(at, i);
  }
  return false;
}

// True if the sentence only supposes the value: "Let x = 5", "y = 3 when x = 5", "if the total is 5".
bool is_supposed(std::string_view text, const std::vector<StatementPart>& parts, size_t at) {
  constexpr size_t most_words = 4;
  const auto value = text.substr(parts[at].begin, parts[at].end - parts[at].begin);
  for (size_t i = at; i-- > 0 && at - i <= most_words + 1;) {
    if (parts[i].kind == Kind::comma || parts[i].kind == Kind::colon || is_number(text, parts[i])) return false;
    if (contains(suppositions, parts[i].word)) return true;
    // "3 for x = 5"
    if (contains(conditions, parts[i].word) && i + 1 == at && value.find('=') != std::string_view::npos) return true;
    if (contains(statements, parts[i].word)) return false;
  }
  return at + 1 < parts.size() && (parts[at + 1].word == "if" || parts[at + 1].word == "unless");
}

// True for "can't be 5", "not the case that x = 5", "5 is not possible", "5 doesn't satisfy it".
bool is_negated_beside(const std::vector<StatementPart>& parts, size_t at) {
  constexpr size_t most_words = 5;
  for (size_t i = at; i-- > 0 && at - i <= most_words && parts[i].kind == Kind::word;) {
    if (contains(statements, parts[i].word) || contains(clause_starts, parts[i].word)) break;
    if (is_negation(parts[i].word)) return true;
  }
  const auto word = [&](size_t i) { return i < parts.size() ? std::string_view(parts[i].word) : std::string_view(); };
  if (word(at + 1) == "not") return at + 2 == parts.size();
  if (is_negation(word(at + 1))) return true;
  return (word(at + 1) == "is" || word(at + 1) == "was") && is_negation(word(at + 2));
}

// "5 (or 6)"
bool has_other_in_remark(std::string_view text, const std::vector<StatementPart>& parts, size_t at) {
  if (at + 1 >= parts.size() || parts[at + 1].kind != Kind::remark) return false;
  const std::string remark = lower(text.substr(parts[at + 1].begin, parts[at + 1].end - parts[at + 1].begin));
  return remark.starts_with("(or ") || remark.starts_with("(maybe ") || remark.starts_with("(perhaps ");
}

// Returns the value of the expression parts[at] with the words around it, or nothing if they state another number: "5
// or 6", "not 5".
std::optional<NumberText> value_in(std::string_view text, const std::vector<StatementPart>& parts, size_t at,
                                   bool last) {
  const auto word = [&](size_t i) { return i < parts.size() ? std::string_view(parts[i].word) : std::string_view(); };
  const auto is_value = [&](size_t i) { return i < parts.size() && is_number(text, parts[i]); };
  const size_t other = last ? at - 2 : at + 2;
  if (contains(joining, word(last ? at - 1 : at + 1)) && (last ? at >= 2 : true) && is_value(other))
    return std::nullopt;
  // "17, alternatively 18"
  if (at >= 3 && contains(alternatives, word(at - 1)) && parts[at - 2].kind == Kind::comma && is_value(at - 3))
    return std::nullopt;
  // "17 → 18" is a map. "10 + 8 → 18" is a calculation.
  if (at >= 2 && word(at - 1) == "→" && is_value(at - 2) && holds_one_number(text, parts[at - 2]) &&
      holds_one_number(text, parts[at]))
    return std::nullopt;
  if (is_negated_beside(parts, at) || has_other_in_remark(text, parts, at)) return std::nullopt;
  if (is_listed(text, parts, at) || is_supposed(text, parts, at)) return std::nullopt;
  const bool doubted = word(at + 2) == "not" && at + 3 == parts.size();  // "18 or not"
  if (word(at + 1) == "or" && (doubted || contains(after_or, word(at + 2)))) return std::nullopt;
  const bool negative = at > 0 && word(at - 1) == "minus" && !(at > 1 && is_value(at - 2));
  if (words_change_value(parts, at) || contains(scaling, word(at + 1)) ||
      (at > 0 && contains(multiples, word(at - 1)) && !negative))
    return std::nullopt;
  std::string_view value = text.substr(parts[at].begin, parts[at].end - parts[at].begin);
  // In "2/3 of 27 = 18" the left side is more than 27.
  if (at > 0 && contains(continuations, word(at - 1)) && std::none_of(value.begin(), value.end(), is_letter))
    value = value.substr(value.find_last_of('=') + 1);
  auto out = number_value(value);
  if (!out) return std::nullopt;
  if (const int zeros = math::multiplier_zeros(word(at + 1)); zeros > 0)
    return out->digits.find('/') == std::string::npos ? std::optional(number_of_digits(shifted(out->digits, zeros)))
                                                      : std::nullopt;
  if (at > 0 && (word(at - 1) == "minus" || word(at - 1) == "negative") && !(at > 1 && is_value(at - 2)))
    return number_value("-" + out->digits);
  return out;
}

// Returns true if a clause negates, doubts or asks for its value: "18 is not the answer", "perhaps 18", "Is it 18?"
bool is_denied(std::string_view clause) {
  if (trimmed(clause).ends_with('?')) return true;
  const std::vector<StatementPart> parts = statement_parts(clause);
  bool negated = false, claimed = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string& word = parts[i].word;
    if (contains(doubts, word) || (contains(verdicts, word) && i > 0 && contains(before_verdicts, parts[i - 1].word)))
      return true;
    if (i > 0 && word == "be" && (parts[i - 1].word == "could" || parts[i - 1].word == "may")) return true;
    negated = negated || is_negation(word);
    claimed = claimed || contains(with_negation, word);
  }
  return negated && claimed;
}

// Returns the clause of a line that contains position `at`: "it's 18" of "It isn't 17, it's 18."
std::string_view clause_at(std::string_view line, size_t at) {
  for (size_t begin = 0;;) {
    const size_t end = sentence_end(line, begin);
    if (end <= at && end < line.size()) {
      begin = end + 1;
      continue;
    }
    const size_t comma = line.substr(0, at).rfind(", ");
    if (comma != std::string_view::npos) begin = std::max(begin, comma + 1);
    return line.substr(begin, end - begin);
  }
}

// Reads the first or last number of a line. Returns false if the line has none.
bool number_of_line(std::string_view line, bool last, std::optional<NumberText>& out) {
  if (line.size() > longest_line) {
    line = last ? line.substr(line.size() - longest_line) : line.substr(0, longest_line);
    if (last) line.remove_prefix(std::min(line.find(' '), line.size()));  // the line was cut inside a word
  }
  const std::vector<StatementPart> parts = statement_parts(line);
  const auto holds_number = [&](const StatementPart& part) { return is_number(line, part); };
  const auto first_found = std::find_if(parts.begin(), parts.end(), holds_number);
  if (first_found == parts.end()) return false;
  const auto last_found = std::find_if(parts.rbegin(), parts.rend(), holds_number);
  const auto at = static_cast<size_t>(last ? parts.rend() - last_found - 1 : first_found - parts.begin());
  out = is_denied(clause_at(line, parts[at].begin)) ? std::nullopt : value_in(line, parts, at, last);
  return true;
}

// Reads "18" or "18 clips". Returns nothing if there are several numbers.
std::optional<NumberText> number_of_box(std::string_view content) {
  if (auto value = number_value(content)) return value;
  std::optional<NumberText> first, last;
  if (!number_of_line(content, false, first) || !number_of_line(content, true, last) || !first || !last ||
      first->digits != last->digits)
    return std::nullopt;
  return first;
}

// Several boxes give a number if all hold the same one.
std::optional<NumberText> number_of_boxes(std::string_view text, const std::deque<MathSpan>& boxes) {
  std::optional<NumberText> out;
  for (const MathSpan& box : boxes) {
    const auto one = number_of_box(with_multiplier(std::string(box.content(text)), text.substr(box.end)));
    if (!one || (out && out->digits != one->digits)) return std::nullopt;
    out = one;
  }
  return out;
}

}  // namespace

std::optional<NumberText> number_value(std::string_view expression) {
  if (expression.size() > longest_line) return std::nullopt;
  if (const size_t annotation = expression.rfind(">>"); annotation != std::string_view::npos)
    expression.remove_prefix(annotation + 2);
  expression = unwrapped(expression);
  if (const size_t equals = expression.find_last_of('='); equals != std::string_view::npos) {
    std::string chain(expression);
    times_for_x(chain);
    if (holds_inequality(expression) || !states_last_side(chain)) return std::nullopt;
    expression = expression.substr(equals + 1);
  }
  std::string_view text = unwrapped(expression);
  bool negative = false;
  for (const std::string_view minus : {"-", "−", "–"})
    if (text.starts_with(minus)) {
      negative = true;
      text = unwrapped(text.substr(minus.size()));
      break;
    }
  if (text.starts_with('+')) text = trimmed(text.substr(1));
  for (const std::string_view currency : {"\\$", "$", "€", "£", "¥"})
    if (text.starts_with(currency)) text = trimmed(text.substr(currency.size()));
  for (const std::string_view command : {"\\frac", "\\dfrac", "\\tfrac"}) {
    if (!text.starts_with(command)) continue;
    const std::string_view rest = trimmed(text.substr(command.size()));
    const size_t middle = rest.find("}{");
    if (!rest.starts_with('{') || !rest.ends_with('}') || middle == std::string_view::npos) return std::nullopt;
    return plain_fraction(concat(rest.substr(1, middle - 1), "/", rest.substr(middle + 2, rest.size() - middle - 3)),
                          negative);
  }
  if (text.find('/') != std::string_view::npos) return plain_fraction(text, negative);
  const auto number = first_number(text);
  if (!number || number->begin != 0) return std::nullopt;
  std::string digits = number->digits;
  std::string_view rest = text.substr(number->end);
  if (rest.starts_with('e') || rest.starts_with('E')) {
    int64_t exponent = 0;
    const size_t from = rest.substr(1).starts_with('+') ? 2 : 1;
    const auto [stop, failure] = std::from_chars(rest.data() + from, rest.data() + rest.size(), exponent);
    if (failure != std::errc() || exponent > 400 || exponent < -400) return std::nullopt;
    digits = shifted(digits, exponent);
    rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
  }
  if (!is_unit(trimmed(rest))) return std::nullopt;
  if (negative && digits != "0") digits = digits.starts_with('-') ? digits.substr(1) : "-" + digits;
  return number_of_digits(std::move(digits));
}

std::optional<NumberText> number_answer(std::string_view completion, const std::vector<std::string>& markers,
                                        bool require_marker) {
  std::string_view text = answer_part(completion);
  if (!require_marker)
    if (const auto boxes = find_boxes(text, most_boxes); !boxes.empty()) {
      const bool changed = std::any_of(boxes.begin(), boxes.end(), [&](const MathSpan& box) {
        return changes_box_value(text, box) || denies_box(text, box);
      });
      return changed ? std::nullopt : number_of_boxes(text, boxes);
    }
  if (is_double_factorial(text)) return std::nullopt;
  text = corrected(text);
  std::optional<NumberText> out;
  for (const std::string& marker : markers) {
    const size_t at = rfind_ignoring_case(text, marker);
    if (at == std::string_view::npos || is_marker_denied(text.substr(0, at))) continue;
    const std::string_view after = text.substr(at + marker.size());
    if (is_letter(marker.back()) && !after.empty() && is_letter(after.front())) continue;  // "answer isn't"
    if (number_of_line(after.substr(0, after.find('\n', after.find_first_not_of(" \t\r\n"))), false, out)) return out;
  }
  if (require_marker) return std::nullopt;
  // From the last line with a digit upwards.
  for (size_t digit; (digit = text.find_last_of("0123456789")) != std::string_view::npos;) {
    const size_t line = text.find_last_of('\n', digit), begin = line == std::string_view::npos ? 0 : line + 1;
    if (number_of_line(text.substr(begin, text.find('\n', digit) - begin), true, out)) return out;
    text = text.substr(0, begin);
  }
  return std::nullopt;
}

}  // namespace hone
