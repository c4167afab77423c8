#include "rewards/answers/reading.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/base/check.h"
#include "rewards/answers/aligned.h"
#include "rewards/answers/spans.h"
#include "rewards/answers/text.h"
#include "rewards/answers/units.h"
#include "rewards/answers/words.h"

namespace hone {

namespace {

constexpr size_t longest_unit = 5;  // words

using Kind = StatementPart::Kind;
using Parts = std::vector<StatementPart>;

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

constexpr std::string_view copulas[] = {"is",    "are",     "was",    "were",  "equals",
                                        "equal", "becomes", "yields", "gives", "totals"};
constexpr std::string_view findings[] = {"find", "get", "have", "obtain", "see", "conclude"};  // after "we"
constexpr std::string_view conclusions[] = {"so",           "therefore", "thus",    "hence",
                                            "consequently", "giving",    "leaving", "then"};
constexpr std::string_view explanations[] = {"since", "because", "so", "therefore", "thus", "hence"};
constexpr std::string_view openings[] = {"since", "because", "if",       "when", "as",  "given",
                                         "after", "while",   "although", "for",  "with"};
// The value is negated, doubted or conditional if the sentence contains one of these words.
constexpr std::string_view doubts[] = {"cannot",     "neither",  "nor",        "wrong",     "incorrect", "incorrectly",
                                       "impossible", "unless",   "except",     "otherwise", "maybe",     "perhaps",
                                       "either",     "unlikely", "if",         "false",     "might",     "doubt",
                                       "refuse",     "possibly", "extraneous", "anything"};
// Next to a value these words change its meaning.
constexpr std::string_view changing[] = {"between",   "half",    "halves",     "twice",     "thrice", "double",
                                         "triple",    "squared", "cubed",      "factorial", "root",   "dozen",
                                         "dozens",    "divided", "multiplied", "divisible", "raised", "logarithm",
                                         "excluding", "exceeds", "exceeding"};
// After "not" these words negate the value. "18 students are not here" gives 18; "18 students is not right" gives none.
constexpr std::string_view denied[] = {"right",    "correct", "it",    "answer",  "true",    "valid",
                                       "possible", "work",    "works", "allowed", "solution"};
// Before a value, with "not", these words negate it: "it is not true that x is 5".
constexpr std::string_view claims[] = {"case",  "true", "think", "believe",  "correct", "right",
                                       "claim", "say",  "mean",  "possible", "clear",   "sure"};
constexpr std::string_view auxiliaries[] = {"do", "does",   "did",  "can",   "could",
                                            "be", "should", "will", "would", "must"};
// Values next to these words are not a list: "from 3 to 5", "3 times 5".
constexpr std::string_view unlisted[] = {"not", "never", "from", "times", "plus", "minus", "than"};
// Words after "5 and" that change the value: "5 and a half", "5 and above".
constexpr std::string_view additions[] = {"a", "an", "up", "above", "over", "some", "more"};
// Words that make a value a bound. Only "the" and "about" may stand between them and the value.
constexpr std::string_view bounds[] = {"than",   "over",  "under", "above", "below", "beyond", "nearly",
                                       "almost", "least", "most",  "or",    "plus",  "times",  "except"};
constexpr std::string_view fillers[] = {"the",           "a",      "an",      "about", "exactly",
                                        "approximately", "around", "roughly", "just",  "only"};
// "reciprocal of 5"
constexpr std::string_view operations[] = {
    "half",    "third",   "quarter", "fourth",   "fifth",    "sixth",      "seventh",   "eighth",  "ninth",
    "tenth",   "root",    "square",  "cube",     "log",      "multiple",   "multiples", "power",   "powers",
    "factor",  "factors", "inverse", "negative", "opposite", "reciprocal", "percent",   "thirds",  "quarters",
    "fourths", "fifths",  "tenths",  "digit",    "digits",   "out",        "divisor",   "divisors"};
// Words directly after a value that make it a share.
constexpr std::string_view shares[] = {"third",      "thirds",      "fourth",    "fourths",  "fifth",     "fifths",
                                       "sixth",      "sixths",      "seventh",   "sevenths", "eighth",    "eighths",
                                       "ninth",      "ninths",      "tenth",     "tenths",   "hundredth", "hundredths",
                                       "thousandth", "thousandths", "millionths"};
// "18 fails"; and after "18 is": "too large", "close".
constexpr std::string_view failures[] = {"fail", "fails", "failed"};
constexpr std::string_view rejections[] = {"too",      "close",    "nearly",    "almost",     "partially", "partly",
                                           "rejected", "excluded", "discarded", "eliminated", "invalid"};
// Directly before a value: "we reject 18"; or a label: "Step 18".
constexpr std::string_view refusals[] = {"reject", "exclude", "discard", "eliminate"};
constexpr std::string_view labels[] = {"step", "question", "problem", "exercise", "theorem", "lemma", "example"};
constexpr std::string_view suppositions[] = {"suppose", "assume",   "assuming", "supposing", "imagine",
                                             "pretend", "consider", "try",      "test"};
constexpr std::string_view conditions[] = {"given", "say", "when", "whenever", "where", "unless", "if"};
constexpr std::string_view currencies[] = {"\\$", "€", "£", "¥", "￥", "₹", "₩", "₽", "¢"};
constexpr std::string_view operators[] = {"plus", "minus", "mod", "modulo", "point"};
constexpr std::string_view joining[] = {"plus", "minus", "times", "over", "point", "by", "and", "or", "to", "of", "in"};

// Words for "not" in other languages. In Chinese also other words that change a value: not, maybe, or, more than, less
// than, at least, at most.
constexpr std::string_view foreign_negations[] = {"nicht", "kein", "keine", "pas", "jamais", "nunca", "não",
                                                  "niet",  "ikke", "inte",  "не",  "нет",    "oder",  "или"};
constexpr std::string_view chinese_changes[] = {"不",   "非",   "没",   "可能", "也许", "或",   "大于",
                                                "小于", "少于", "多于", "超过", "至少", "至多", "最多",
                                                "最少", "错",   "假设", "如果", "ない", "なく"};
// Subjects that negate a statement: "nothing equals 5", "no number is 5".
constexpr std::string_view negative_subjects[] = {"nothing", "none",   "nobody", "noone",
                                                  "no-one",  "hardly", "barely", "scarcely"};

bool is_negated(std::string_view word) {
  return word.ends_with("n't") || word.ends_with("n’t") || contains(foreign_negations, word) ||
         std::any_of(std::begin(chinese_changes), std::end(chinese_changes),
                     [&](std::string_view one) { return word.find(one) != std::string_view::npos; });
}

bool is_expression(const StatementPart& part) { return part.kind == Kind::expression; }
bool is_word(const Parts& parts, size_t i, std::string_view word) { return i < parts.size() && parts[i].word == word; }

// True for "nothing equals 5", "No number is 5", "no 5": a negative subject in the clause before the value.
bool is_of_nothing(const Parts& parts, size_t at) {
  for (size_t i = at; i-- > 0 && parts[i].kind != Kind::comma;) {
    if (contains(negative_subjects, parts[i].word)) return true;
    if (parts[i].word == "but" && i > 0 && (parts[i - 1].word == "all" || parts[i - 1].word == "everything"))
      return true;
    const bool starts = i == 0 || parts[i - 1].kind == Kind::comma;
    if (parts[i].word == "no" && (starts || i + 1 == at || is_word(parts, i + 1, "es"))) return true;
  }
  return false;
}

// True for "18-gon" and "18-sided", which do not mean eighteen of something. False for a unit ("18-year").
bool is_compound(const Parts& parts, size_t at) { return at + 1 < parts.size() && parts[at + 1].hyphenated; }

// True for the date "May 18" or "18 May". "In May 18 clips were sold" counts clips.
bool is_date(const Parts& parts, size_t at) {
  if (parts[at].end - parts[at].begin > 2) return false;  // a day has at most two digits
  const auto word = [&](size_t i) { return i < parts.size() ? std::string_view(parts[i].word) : std::string_view(); };
  return at > 0 && math::is_month(word(at - 1)) ? word(at + 1).empty()
                                                : math::is_month(word(at + 1)) && word(at + 2).empty();
}

// True for a map of a variable: "x → 18".
bool is_mapped(const Parts& parts, size_t at) {
  if (at == 0 || !parts[at - 1].word.ends_with("→")) return false;
  const size_t left = parts[at - 1].word.size() - std::string_view("→").size();
  return (left == 0 && at > 1 ? parts[at - 2].word.size() : left) == 1;
}

bool changes_before(const Parts& parts, size_t at) {
  size_t left = at;
  while (left > 0 && contains(fillers, parts[left - 1].word)) --left;
  if (left == 0 || parts[left - 1].kind != Kind::word) return false;
  const std::string& word = parts[left - 1].word;
  if (contains(bounds, word) || contains(refusals, word) || contains(labels, word) || is_number_word(word))
    return word != "one" || left == at;
  if (left < 2 || parts[left - 2].kind != Kind::word) return false;
  const std::string& other = parts[left - 2].word;
  if (word == "of" && contains(operations, other)) return true;
  if (word == "to" && (other == "up" || other == "close")) return true;
  if (word == "to" && at + 1 < parts.size() && parts[at + 1].word == "th") return true;  // x to the 5th
  return contains(joining, word) && is_number_word(other) && other != "one";
}

bool changes_after(const Parts& parts, size_t at) {
  if (at + 1 >= parts.size() || parts[at + 1].kind != Kind::word) return false;
  const std::string& next = parts[at + 1].word;
  if (contains(shares, next) || contains(failures, next)) return true;
  const auto word = [&](size_t i) { return i < parts.size() ? std::string_view(parts[i].word) : std::string_view(); };
  const std::string_view other = word(at + 2);
  if (contains(operators, next)) return true;
  if ((next == "rd" || next == "th") && other == "of") return true;
  if ((next == "quarter" || next == "quarters") && other == "of") return true;
  if (next == "below" || next == "above" || other == "below" || word(at + 3) == "below") return true;
  if (contains(joining, next) && is_number_word(other) && !(next == "in" && other == "one")) return true;
  if (next == "times" && is_number_word(other)) return true;
  if (next == "and") return contains(additions, other);
  if (next == "out" && other == "of") return true;
  return is_number_word(next) && next != "one";
}

class SentenceReader {
 public:
  SentenceReader(std::string_view text, const StatementOptions& options, SentenceRole role)
      : text_(text), options_(options), role_(role) {}

  MathReading run() {
    Parts parts = statement_parts(text_, options_);
    if (!drop_remarks(parts)) return {.value = {}, .words_only = true};
    if (!holds_expression(parts)) return {};
    if (!drop_negated(parts)) return {.value = {}, .words_only = true};
    if (holds_expression(parts)) drop_explanations(parts);
    return holds_expression(parts) ? chain(std::move(parts)) : MathReading();
  }

 private:
  static bool holds_expression(const Parts& parts) { return std::any_of(parts.begin(), parts.end(), is_expression); }
  std::string_view text_of(const StatementPart& part) const { return text_.substr(part.begin, part.end - part.begin); }

  // Removes remarks: "5 (five)" is 5. Returns false if a remark offers another value: "5 (or 6)".
  bool drop_remarks(Parts& parts) const {
    if (!holds_expression(parts) &&
        std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.kind == Kind::remark; })) {
      Parts inside;
      for (const StatementPart& part : parts) {
        if (part.kind != Kind::remark) {
          inside.push_back(part);
          continue;
        }
        for (StatementPart& one : statement_parts(text_.substr(part.begin + 1, part.end - part.begin - 2), options_)) {
          one.begin += part.begin + 1;
          one.end += part.begin + 1;
          inside.push_back(std::move(one));
        }
      }
      parts = std::move(inside);
      return true;
    }
    for (const StatementPart& part : parts) {
      if (part.kind != Kind::remark) continue;
      const Parts inside = statement_parts(text_.substr(part.begin + 1, part.end - part.begin - 2), options_);
      const bool explains = !inside.empty() && (inside[0].word == "not" || contains(explanations, inside[0].word) ||
                                                inside[0].word == "rounded");
      const bool alternative = std::any_of(
          inside.begin(), inside.end(), [](const auto& one) { return one.word == "or" || contains(doubts, one.word); });
      if (!explains && (alternative || holds_expression(inside))) return false;
    }
    std::erase_if(parts, [](const StatementPart& part) { return part.kind == Kind::remark; });
    return true;
  }

  // Removes negated values: "18, not 20" and "18 instead of 20" are 18; "not 18 but 20" is 20. Returns false if the
  // value itself is negated: "18 is not it".
  static bool drop_negated(Parts& parts) {
    bool value = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      value = value || is_expression(parts[i]);
      const std::string& word = parts[i].word;
      if (value && (is_negated(word) || word == "cannot")) {
        if (is_expression(parts[i - 1]) || denies_value(parts, i)) return false;
        continue;
      }
      const bool denies = word == "not";
      const bool replaces =
          (word == "instead" && is_word(parts, i + 1, "of")) || (word == "rather" && is_word(parts, i + 1, "than"));
      if (!denies && !replaces) continue;
      if (value) {
        if (denies && (contains(copulas, parts[i - 1].word) || contains(auxiliaries, parts[i - 1].word))) {
          if (i < 2 || is_expression(parts[i - 2]) || denies_value(parts, i)) return false;
          continue;
        }
        if (i + 1 == parts.size()) return false;  // "18 not"
        parts.resize(i);
        while (parts.back().kind == Kind::comma || parts.back().word == "and" || parts.back().word == "but")
          parts.pop_back();
        return true;
      }
      const auto but = std::find_if(parts.begin() + static_cast<ptrdiff_t>(i), parts.end(),
                                    [](const auto& part) { return part.word == "but"; });
      if (but == parts.end()) continue;
      parts.erase(parts.begin(), but + 1);
      return drop_negated(parts);
    }
    return true;
  }

  static bool denies_value(const Parts& parts, size_t negation) {
    return std::any_of(parts.begin() + static_cast<ptrdiff_t>(negation), parts.end(),
                       [](const auto& part) { return contains(denied, part.word); });
  }

  void drop_explanations(Parts& parts) const {
    const auto word_at = [&](size_t i, const auto& set) {
      return parts[i].kind == Kind::word && contains(set, parts[i].word);
    };
    if (role_ == SentenceRole::conclusion) {
      // "Since there are 3, she has 8"
      if (word_at(0, openings)) {
        const auto comma =
            std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part.kind == Kind::comma; });
        if (comma != parts.end() && std::any_of(comma, parts.end(), is_expression))
          parts.erase(parts.begin(), comma + 1);
      }
      for (size_t i = parts.size(); i-- > 0;) {
        const bool finds = word_at(i, findings) && i > 0 && parts[i - 1].word == "we";
        const size_t before = finds ? i - 1 : i;
        if (before > 0 && (parts[before - 1].word == "or" || parts[before - 1].word == "and")) continue;
        if ((finds || word_at(i, conclusions)) &&
            std::any_of(parts.begin() + static_cast<ptrdiff_t>(i), parts.end(), is_expression)) {
          parts.erase(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(i + 1));
          break;
        }
      }
    }
    bool value = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      value = value || is_expression(parts[i]);
      const bool reason =
          word_at(i, explanations) || (parts[i].word == "as" && i > 0 && parts[i - 1].kind == Kind::comma);
      if (value && reason && !is_word(parts, i - 1, "or")) return parts.resize(i);
    }
  }

  struct Side {
    Parts parts = {};
    bool after_equals = false;  // false after "is" or a colon
    bool holds_value() const { return holds_expression(parts); }
    bool doubts_value() const {
      const auto says = [&](auto&& set) {
        return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return contains(set, part.word); });
      };
      const bool negated = std::any_of(parts.begin(), parts.end(),
                                       [](const auto& part) { return part.word == "not" || is_negated(part.word); });
      return says(doubts) || (negated && says(claims));
    }
    // "x does not", before "equal 5"
    bool ends_in_negation() const {
      return !parts.empty() &&
             (parts.back().word == "not" || parts.back().word == "never" || is_negated(parts.back().word));
    }
    // Returns true if a list or another statement follows the value. "18, the last digit of which is" continues with
    // the same value.
    bool goes_on() const {
      const auto value = std::find_if(parts.begin(), parts.end(), is_expression);
      const auto says = [&](std::string_view word) {
        return std::any_of(value, parts.end(), [&](const auto& part) { return part.word == word; });
      };
      const bool separates =
          says("and") || std::any_of(value, parts.end(), [](const auto& part) { return part.kind == Kind::comma; });
      return says("or") || (separates && !says("which"));
    }
  };

  // Returns the last side of "the total is 5 + 3 = 8 apples". Several chains ("x is 5 and y is 6") have none.
  MathReading chain(Parts parts) const {
    const bool let = parts[0].word == "let" && parts.size() > 1 && is_expression(parts[1]);  // excludes "let me check"
    if (role_ == SentenceRole::conclusion && (let || contains(suppositions, parts[0].word)))
      return {.value = {}, .words_only = true};
    const auto value_at = std::find_if(parts.begin(), parts.end(), is_expression);
    if (is_of_nothing(parts, static_cast<size_t>(value_at - parts.begin()))) return {.value = {}, .words_only = true};
    std::vector<Side> sides(1);
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool copula =
          parts[i].kind == Kind::word && contains(copulas, parts[i].word) && !(i > 0 && parts[i - 1].word == "or");
      if (copula || parts[i].kind == Kind::colon)
        sides.push_back({.after_equals = parts[i].kind == Kind::colon && text_[parts[i].begin] != ':'});
      else
        sides.back().parts.push_back(parts[i]);
    }
    if (role_ == SentenceRole::conclusion && sides.size() == 1 && contains(conditions, parts[0].word))
      return {.value = {}, .words_only = true};
    size_t last = sides.size() - 1;
    while (!sides[last].holds_value()) --last;
    for (size_t i = 0; i < sides.size(); ++i) {
      if (i != last && sides[i].doubts_value() && (i > last || !sides[i].holds_value()))
        return {.value = {}, .words_only = true};
      const bool rejected = i > last && !sides[i].parts.empty() && contains(rejections, sides[i].parts[0].word);
      if (rejected || (i < last && sides[i].ends_in_negation())) return {.value = {}, .words_only = true};
      if (i > 0 && i < last && sides[i].goes_on()) return {};
      // After "the answer is", "5 apples: 3 of them are red" is not a chain.
      if (role_ == SentenceRole::marked && i > 0 && i <= last && !sides[i].after_equals && sides[0].holds_value())
        return {};
    }
    return side(sides[last].parts);
  }

  MathReading side(Parts parts) const {
    if (role_ == SentenceRole::conclusion) keep_calculation(parts);
    const auto count = std::count_if(parts.begin(), parts.end(), is_expression);
    if (count > 1) return several(parts);
    const auto at = static_cast<size_t>(std::find_if(parts.begin(), parts.end(), is_expression) - parts.begin());
    if (changes(parts, at)) return {.value = {}, .words_only = true};
    return {.value = value(parts, at)};
  }

  // "64 * 5 = 320"
  bool calculates(const StatementPart& part) const {
    const std::string_view text = text_of(part), left = text.substr(0, text.find('='));
    return is_expression(part) && left.size() < text.size() && std::any_of(left.begin(), left.end(), is_digit);
  }

  // Keeps only the calculation of "64 emails for 5 days, in all 64 * 5 = 320 emails", if words separate it from the
  // numbers before it.
  void keep_calculation(Parts& parts) const {
    const auto equation = [&](const StatementPart& part) {
      return is_expression(part) && text_of(part).find('=') != std::string_view::npos;
    };
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return calculates(part); });
    if (found == parts.end() || found == parts.begin() || std::count_if(parts.begin(), parts.end(), equation) != 1)
      return;
    if (std::any_of(found + 1, parts.end(), is_expression)) return;
    const auto before = found - 1;
    const bool apart = before->kind == Kind::word && before->word != "and" && before->word != "or";
    const bool offers = std::any_of(parts.begin(), parts.end(),
                                    [](const auto& part) { return part.word == "or" || contains(doubts, part.word); });
    if (apart && !offers) parts.erase(parts.begin(), before);
  }

  static bool is_alternative(std::string_view gap) {
    const std::vector<std::string_view> words = words_of(gap);
    return std::find(words.begin(), words.end(), "or") != words.end();
  }

  // "2 and 3" is a list if nothing else stands between the values. Any other text with several values has none.
  MathReading several(const Parts& parts) const {
    if (std::any_of(parts.begin(), parts.end(), [](const auto& part) {
          return contains(changing, part.word) || contains(unlisted, part.word) || is_negated(part.word);
        }))
      return {.value = {}, .words_only = true};
    std::string out;
    size_t end = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!is_expression(parts[i])) continue;
      // "y = 5 when x = 3": no equality alone is the statement.
      if (!out.empty() && !joins_answers(text_.substr(end, parts[i].begin - end)))
        return {.value = {}, .words_only = text_.find('=') != std::string_view::npos};
      const bool alternative = !out.empty() && is_alternative(text_.substr(end, parts[i].begin - end));
      (out += out.empty() ? "" : alternative ? " or " : ", ") += value(parts, i);
      end = parts[i].end;
    }
    return {.value = std::move(out)};
  }

  // Returns true if the words around the value change it.
  bool changes(const Parts& parts, size_t at) const {
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string& word = parts[i].word;
      if (word.empty()) continue;
      if (contains(doubts, word) || word == "or") return true;
      if (contains(changing, word) && !(i < at && calculates(parts[at]))) return true;
      if (i < at && is_negated(word)) return true;
      if (i < at && (word == "not" || word == "never" || word == "than")) return true;
      if ((word == "could" || word == "may") && i < at && is_word(parts, i + 1, "be")) return true;
      if (word == "ruled" && is_word(parts, i + 1, "out")) return true;
      if (word == "at" && (is_word(parts, i + 1, "least") || is_word(parts, i + 1, "most"))) return true;
    }
    return words_change_value(parts, at);
  }

  // Returns the expression with its sign in words, percent, multiplier and unit.
  std::string value(const Parts& parts, size_t at) const {
    std::string out = aligned_statement(text_of(parts[at]));
    for (size_t note, end;
         (note = out.find("<<")) != std::string::npos && (end = out.find(">>", note)) != std::string::npos;)
      out.erase(note, end + 2 - note);
    while (!out.empty() && (out[0] == '=' || out[0] == ' ')) out.erase(0, 1);
    times_for_x(out);
    // "4x = 4 * 20 = 80" states "4 * 20 = 80".
    const size_t first = out.find('=');
    if (!parts[at].formula && first != std::string::npos && out.find('=', first + 1) != std::string::npos &&
        std::none_of(out.begin() + static_cast<ptrdiff_t>(first), out.end(), is_letter))
      out.erase(0, first + 1);
    const std::string_view rest = text_.substr(std::min(text_.size(), parts[at].end));
    if (!parts[at].formula && !out.empty() && (is_digit(out[0]) || out[0] == '.'))
      out = concat(currency_before(parts[at].begin), out, currency_after(parts[at].end));
    if (at > 0 && (parts[at - 1].word == "minus" || parts[at - 1].word == "negative")) out = "-(" + out + ")";
    if (percent_follows(rest)) return out.ends_with('%') ? out : out + "\\%";
    size_t next = at + 1, end = 0;
    if (next < parts.size() && math::multiplier_zeros(parts[next].word) > 0) (out += " ") += parts[next++].word;
    // The longest phrase that is a unit: "square meters", "km per hour".
    const size_t unit = next;
    for (; next < parts.size() && next < unit + longest_unit && parts[next].kind == Kind::word; ++next) {
      if (next > unit && parts[next].word == "in") break;  // "5 cm in a day"
      if (math::read_unit(text_.substr(parts[unit].begin, parts[next].end - parts[unit].begin))) end = parts[next].end;
    }
    if (end > 0) out += concat("\\text{ ", text_.substr(parts[unit].begin, end - parts[unit].begin), "}");
    return out;
  }
  // Returns the currency sign next to a number. The statement parser skips it.
  std::string_view currency_before(size_t at) const {
    const std::string_view before = text_.substr(0, at);
    for (const std::string_view sign : currencies)
      if (before.ends_with(sign)) return sign;
    return {};
  }
  std::string_view currency_after(size_t at) const {
    const std::string_view after = trimmed(text_.substr(at, 8));
    for (const std::string_view sign : currencies)
      if (sign != "\\$" && after.starts_with(sign)) return sign;
    return {};
  }

  std::string_view text_;
  StatementOptions options_;
  SentenceRole role_;
};

}  // namespace

void times_for_x(std::string& text) {
  for (size_t at = text.find('x'); at != std::string::npos; at = text.find('x', at + 1)) {
    const size_t left = at == 0 ? std::string::npos : text.find_last_not_of(' ', at - 1),
                 right = text.find_first_not_of(" $", at + 1);
    const bool digits =
        left != std::string::npos && right != std::string::npos && is_digit(text[left]) && is_digit(text[right]);
    if (digits) text[at] = '*';
  }
}

bool is_negation(std::string_view word) { return word == "not" || word == "never" || is_negated(word); }

bool words_change_value(const std::vector<StatementPart>& parts, size_t at) {
  return changes_before(parts, at) || changes_after(parts, at) || is_compound(parts, at) || is_of_nothing(parts, at) ||
         is_date(parts, at) || is_mapped(parts, at);
}

MathReading read_sentence(std::string_view sentence, const StatementOptions& options, SentenceRole role) {
  return SentenceReader(sentence, options, role).run();
}

}  // namespace hone
