#include "rewards/answers/statement.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "rewards/answers/spans.h"
#include "rewards/answers/text.h"
#include "rewards/answers/units.h"
#include "rewards/answers/words.h"

namespace hone {

namespace {

using Kind = StatementPart::Kind;

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

constexpr std::string_view number_words[] = {
    "one",      "two",    "three",  "four",     "five",     "six",     "seven",   "eight",     "nine",
    "ten",      "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty", "thirty", "forty",    "fifty",    "sixty",   "seventy", "eighty",    "ninety"};
// Characters outside ASCII that are part of an expression.
constexpr std::string_view signs[] = {"×", "·", "⋅", "÷", "±", "√", "π", "²", "³", "½", "¼", "¾", "≤", "≥",
                                      "≠", "∞", "∪", "∩", "∈", "°", "−", "∅", "θ", "≡", "⌊", "⌋", "⌈", "⌉"};
// Characters that are dropped: currencies, quotes.
constexpr std::string_view ignored[] = {"€", "£", "¥", "￥", "₹", "₩", "₽", "¢", "“", "”", "‘", "\u200b"};
constexpr std::string_view wide_commas[] = {"，", "；", "、"}, wide_stops[] = {"。", "！", "？", "：", "（", "）"};
constexpr std::string_view spaces[] = {"\u00a0", "\u202f", "\u2009"};
// Words of two letters that are not products of variables.
constexpr std::string_view short_words[] = {"is", "so", "of", "or", "in", "to", "at", "by", "as", "an", "be", "do",
                                            "go", "he", "if", "it", "me", "my", "no", "on", "up", "us", "we", "am"};
// Commands that join a letter to the text after it.
constexpr std::string_view relations[] = {"le", "leq",    "ge",  "geq",   "lt",   "gt",    "ne", "neq",
                                          "in", "approx", "sim", "equiv", "cdot", "times", "pm", "cup"};
// Words that "3:" may number: "Step 3: 18" is not a ratio.
constexpr std::string_view numbered[] = {"step",  "question", "problem", "part",     "case", "day",  "week",
                                         "month", "year",     "example", "exercise", "task", "round"};

std::string_view sign_at(std::string_view text) {
  for (const std::string_view sign : signs)
    if (text.starts_with(sign)) return sign;
  return {};
}

template <size_t N>
bool starts_with_one_of(const std::string_view (&set)[N], std::string_view text) {
  return std::any_of(std::begin(set), std::end(set), [&](std::string_view one) { return text.starts_with(one); });
}

class StatementReader {
 public:
  StatementReader(std::string_view text, const StatementOptions& options) : text_(text), options_(options) {
    if (options_.formulas) formulas_ = find_formulas(text);
  }

  std::vector<StatementPart> run() {
    while (at_ < text_.size()) step();
    return std::move(parts_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char before() const { return at_ > 0 ? text_[at_ - 1] : ' '; }
  size_t skipped_spaces(size_t at) const {
    while (at < text_.size() && text_[at] == ' ') ++at;
    return at;
  }
  bool starts_with(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  // Returns true if an operand may start at `at`: a number, bracket, command, formula, or a letter that is not a word.
  bool operand_at(size_t at) const {
    if (at >= text_.size()) return false;
    const char c = text_[at];
    if (is_digit(c) || c == '(' || c == '\\' || c == '$' ||
        (c == '.' && at + 1 < text_.size() && is_digit(text_[at + 1])))
      return true;
    if (!sign_at(text_.substr(at)).empty() || text_.substr(at).starts_with("€") || text_.substr(at).starts_with("£"))
      return true;
    size_t end = at;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string word = lower(text_.substr(at, end - at));
    return end > at && (end - at == 1 || math::is_function_name(word) || word == "pi" ||
                        (end - at == 2 && math::is_product_of_letters(word)));
  }

  // -- the parts
  void extend(size_t end, bool sign = false) {
    if (!open_) parts_.push_back({.kind = Kind::expression, .begin = at_});
    open_ = true;
    after_sign_ = sign;
    parts_.back().end = at_ = end;
  }
  void add(Kind kind, size_t end) {
    open_ = false;
    parts_.push_back({.kind = kind, .begin = at_, .end = end});
    if (kind == Kind::word) parts_.back().word = lower(text_.substr(at_, end - at_));
    at_ = end;
  }
  void skip(size_t count = 1) { at_ = std::min(at_ + count, text_.size()); }
  void close(size_t count = 1) {
    open_ = false;
    skip(count);
  }
  bool touches_expression() const { return open_ && parts_.back().end == at_; }

  void step() {
    const char c = peek();
    if (is_space(c)) return skip();
    while (!formulas_.empty() && formulas_.front().end <= at_) formulas_.pop_front();
    if (!formulas_.empty() && formulas_.front().begin == at_) return formula();
    if (starts_with("<<")) {  // <<9*2=18>>
      const size_t end = text_.find(">>", at_);
      return skip(end == std::string_view::npos ? 2 : end + 2 - at_);
    }
    if (static_cast<unsigned char>(c) >= 0x80) return other_script();
    if (is_letter(c)) return letters();
    if (c == ',' || c == ';') return add(Kind::comma, at_ + 1);
    if (!options_.expressions) return close();
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    if (c == '\\') return command();
    if (c == '(' || c == '[' || c == '{') return group();
    sign();
  }

  // A formula that touches a sign is part of a longer expression, "$3$/4". Its dollar signs stay in the text, and the
  // parser drops them.
  void formula() {
    const MathSpan span = formulas_.front();
    const bool goes_on = options_.expressions && joins_formula(span.end);
    const bool alone = !open_ && !goes_on;
    extend(span.end);
    open_ = goes_on;
    if (!alone) return;
    parts_.back().formula = true;
    parts_.back().begin = span.content_begin;
    parts_.back().end = span.content_end;
  }
  bool joins_formula(size_t end) const {
    const size_t next = skipped_spaces(end);
    if (next >= text_.size()) return false;
    if (is_digit(text_[next]) || !sign_at(text_.substr(next)).empty()) return true;
    if (std::string_view("+-*/^_=<>:!(%").find(text_[next]) == std::string_view::npos) return false;
    return next == end || operand_at(skipped_spaces(next + 1));
  }

  void number() {
    size_t end = at_;
    const auto digit = [&](size_t k) { return k < text_.size() && is_digit(text_[k]); };
    while (digit(end)) ++end;
    // Thousands separators or a decimal comma. The parser decides which.
    for (size_t next; (next = after_comma(end)) > end && digit(next);)
      for (end = next; digit(end);) ++end;
    while (end < text_.size() && text_[end] == '.' && digit(end + 1)) {
      ++end;
      while (digit(end)) ++end;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const size_t sign = end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+') ? 1 : 0;
      if (digit(end + 1 + sign))
        for (end += 1 + sign; digit(end);) ++end;
    }
    extend(end);
  }

  // Returns the position after "," or LaTeX's ",\!" and "{,}" between the digits of a number.
  size_t after_comma(size_t at) const {
    const std::string_view rest = text_.substr(at);
    if (rest.starts_with("{,}")) return at + 3;
    if (rest.starts_with(",\\!")) return skipped_spaces(at + 3);
    return rest.starts_with(',') ? at + 1 : at;
  }

  // -- letters
  static bool is_article(std::string_view word) { return word == "a" || word == "A" || word == "I"; }
  void letters() {
    size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || is_word_byte(end))) ++end;
    // AZYUK2A, B12 and x2 are names; 答案是18 is not.
    const bool ascii = static_cast<unsigned char>(text_[end - 1]) < 0x80;
    if (end < text_.size() && is_digit(text_[end]) && ascii) {
      while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
      return touches_expression() ? extend(end) : add(Kind::word, end);
    }
    if (!options_.expressions) return add(Kind::word, end);
    const std::string_view run = text_.substr(at_, end - at_);
    if (touches_expression()) return letters_after_expression(run, end);
    const size_t next = skipped_spaces(end);
    const char ahead = next < text_.size() ? text_[next] : '\0';
    if (math::is_function_name(run) &&
        (ahead == '(' || ahead == '\\' || ahead == '_' || ahead == '^' || is_digit(ahead) || end - at_ == 3) &&
        operand_or_script_at(next))
      return extend(end, true);
    if (run == "pi" || run == "inf" || run == "infinity") return extend(end);
    if (joins_equations(run, next)) return add(Kind::word, end);
    // "8 m/s", "8 M&Ms"
    if (run.size() == 1 && open_ && !after_sign_ && ((ahead == '/' && is_unit_letter(run[0])) || ahead == '&'))
      return add(Kind::word, end);
    const bool names = run.size() == 1 || (run.size() == 2 && !contains(short_words, lower(run)));
    if (names && (sign_joins(end, next) || (open_ && after_sign_ && run.size() == 1))) return extend(end);
    if (names && run.size() == 1 && open_ && !is_article(run) && !is_unit_letter(run[0])) return extend(end);
    add(Kind::word, end);
  }
  // Returns true for the "v" (or) of "x = 17 v x = 18".
  bool joins_equations(std::string_view run, size_t next) const {
    return run == "v" && open_ && !after_sign_ && before() == ' ' && operand_at(next) &&
           text_.substr(parts_.back().begin, at_ - parts_.back().begin).find('=') != std::string_view::npos &&
           text_.find('=', next) != std::string_view::npos;
  }
  bool operand_or_script_at(size_t at) const {
    return operand_at(at) || (at < text_.size() && (text_[at] == '_' || text_[at] == '^'));
  }
  bool is_word_byte(size_t at) const {
    const char c = text_[at];
    const bool inside = at > 0 && at + 1 < text_.size() && is_letter(text_[at - 1]) && is_letter(text_[at + 1]);
    if (c == '\'' || c == '-') {
      size_t left = at;
      while (left > at_ && is_letter(text_[left - 1])) --left;
      return inside && (c == '\'' || at - left >= 2);
    }
    return static_cast<unsigned char>(c) >= 0x80 && sign_at(text_.substr(at)).empty() &&
           !text_.substr(at).starts_with("—") && !text_.substr(at).starts_with("–") &&
           !text_.substr(at).starts_with("≈") && !starts_with_one_of(ignored, text_.substr(at)) &&
           !starts_with_one_of(spaces, text_.substr(at)) && !starts_with_one_of(wide_commas, text_.substr(at)) &&
           !starts_with_one_of(wide_stops, text_.substr(at));
  }
  // Returns true if a sign joins the letters before `end` to the text after it: "x = 3", "f(2)", "x_1", "n-1".
  bool sign_joins(size_t end, size_t next) const {
    if (next >= text_.size()) return false;
    const char c = text_[next];
    const bool touching = next == end;
    if (c == '!') return text_.substr(next).starts_with("!=") || (touching && starts_equation(next + 1));
    if (c == '%') return touching && starts_equation(next + 1);
    if (c == '(' || c == '_' || c == '^') return touching;
    if (c == '=' || c == '<' || c == '>' || c == '+' || text_.substr(next).starts_with("≈")) return true;
    if (c == '\\') {
      size_t stop = next + 1;
      while (stop < text_.size() && is_letter(text_[stop])) ++stop;
      return touching || contains(relations, text_.substr(next + 1, stop - next - 1));
    }
    if (c == '*' || c == '/' || c == '-') {
      const size_t right = skipped_spaces(next + 1);
      return touching == (right == next + 1) && operand_at(right);
    }
    return !sign_at(text_.substr(next)).empty();
  }
  bool starts_equation(size_t at) const { return text_.substr(skipped_spaces(at)).starts_with('='); }
  static bool is_unit_letter(char c) { return std::string_view("mgshlLWVJNKCF").find(c) != std::string_view::npos; }
  // "5cm", "2x", "3rd", "72clips", "5m²".
  void letters_after_expression(std::string_view run, size_t end) {
    const bool number = is_digit(before()) || before() == '%';
    const bool power = text_.substr(end).starts_with("²") || text_.substr(end).starts_with("³");
    const bool ordinal = run == "st" || run == "nd" || run == "rd" || run == "th";
    const bool unit = math::is_unit(run) || ordinal || run == "g" || run == "L" || run == "W" || run == "V";
    if (number && (unit || (power && run.size() <= 2))) {
      add(Kind::word, end);
      if (power) skip(std::string_view("²").size());
      return;
    }
    if (run.size() <= 2 || math::is_product_of_letters(run) || math::is_function_name(run)) return extend(end);
    add(Kind::word, end);
  }
  void other_script() {
    const std::string_view rest = text_.substr(at_);
    for (const std::string_view space : spaces)
      if (rest.starts_with(space)) return skip(space.size());
    for (const std::string_view comma : wide_commas)
      if (rest.starts_with(comma)) return add(Kind::comma, at_ + comma.size());
    for (const std::string_view stop : wide_stops)
      if (rest.starts_with(stop)) return close(stop.size());
    for (const std::string_view sign : ignored)
      if (rest.starts_with(sign)) return skip(sign.size());
    if (rest.starts_with("—")) return add(Kind::comma, at_ + std::string_view("—").size());
    if (rest.starts_with("≈")) return equality(std::string_view("≈").size());
    if (rest.starts_with("–")) return dash(std::string_view("–").size());
    if (rest.starts_with("−") && options_.expressions) return extend(at_ + std::string_view("−").size(), true);
    if (const std::string_view sign = sign_at(rest); !sign.empty())
      return options_.expressions ? extend(at_ + sign.size(), true) : close(sign.size());
    letters();
    if (at_ < text_.size() && text_.substr(at_) == rest) close();
  }

  // -- commands and brackets
  // Returns the end of the bracket that opens at `at`; npos if it does not close.
  size_t closing(size_t at) const {
    int depth = 0;
    for (size_t i = at; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '\\' && i + 1 < text_.size() && !is_letter(text_[i + 1])) {
        const char next = text_[++i];
        depth += next == '{' ? 1 : next == '}' ? -1 : 0;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth;
      } else if (c == ')' || c == ']' || c == '}') {
        --depth;
      }
      if (depth == 0 && i > at) return i + 1;
      if (depth < 0) return std::string_view::npos;
    }
    return std::string_view::npos;
  }
  // Returns true if a bracket contains words and no mathematics: "(five)", "(not 18)", "(5 or 6)".
  bool holds_words(size_t begin, size_t end) const {
    for (size_t i = begin; i < end;) {
      size_t stop = i;
      while (stop < end && is_letter(text_[stop])) ++stop;
      const std::string word = lower(text_.substr(i, stop - i));
      const bool command = i > 0 && text_[i - 1] == '\\';
      if (!command && (word == "or" || word == "in" ||
                       (word.size() >= 3 && !math::is_function_name(word) && !math::is_unit(word) && word != "inf" &&
                        word != "infinity" && !math::is_product_of_letters(word))))
        return true;
      i = std::max(stop, i + 1);
    }
    return false;
  }
  void group() {
    const size_t end = closing(at_);
    if (end == std::string_view::npos) return close();
    if (peek() == '(' && holds_words(at_ + 1, end - 1)) return add(Kind::remark, end);
    // "5 (2)" is not a product, "(x+3) (x-3)" is.
    const std::string_view content = text_.substr(at_, end - at_);
    if (peek() != '{' && open_ && !after_sign_ && before() == ' ' &&
        std::none_of(content.begin(), content.end(), is_letter))
      open_ = false;
    extend(end);
  }
  void command() {
    if (!is_letter(peek(1))) {
      const char next = peek(1);
      if (next == '{') {
        const size_t end = closing(at_);
        return end == std::string_view::npos ? close(2) : extend(end);
      }
      if (next == '%' && open_) return extend(at_ + 2);
      return skip(2);
    }
    size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    if (name == "boxed" || name == "fbox") return skip(end - at_);
    if (name == "begin") {
      const size_t stop = text_.find("\\end{", end),
                   last = stop == std::string_view::npos ? stop : text_.find('}', stop);
      return extend(last == std::string_view::npos ? text_.size() : last + 1);
    }
    // The arguments of the command.
    for (;;) {
      const size_t next = skipped_spaces(end);
      if (next >= text_.size() || !(text_[next] == '{' || (text_[next] == '[' && name == "sqrt"))) break;
      const size_t stop = closing(next);
      if (stop == std::string_view::npos) break;
      end = stop;
    }
    extend(end, text_[end - 1] != '}');
  }

  // -- signs
  void sign() {
    const char c = peek();
    if (c == '*') return star();
    if (c == '-') return dash(1);
    if (c == '=') return equality(1);
    if (c == ':') return colon();
    if (c == '!') return bang();
    if (c == '/') return slash();
    if (c == '%') return open_ ? extend(at_ + 1) : skip();
    if (c == '^' || c == '_') return touches_expression() || c == '^' ? extend(at_ + 1, true) : skip();
    if (c == '+' && !open_ && !operand_at(skipped_spaces(at_ + 1))) return close();  // "apples + pears"
    if (c == '<' || c == '>' || c == '+' || c == '|') return extend(at_ + 1, true);
    if (c == '$' || c == '"' || c == '\'') return skip();
    close();
  }
  // Stars are emphasis unless they stand between two operands, with spaces on both sides or on neither.
  void star() {
    size_t end = at_;
    while (end < text_.size() && text_[end] == '*') ++end;
    const size_t next = skipped_spaces(end);
    const bool between = open_ && !after_sign_ && operand_at(next) && (before() == ' ') == (next > end);
    if (between) return extend(end, true);
    skip(end - at_);
  }
  void dash(size_t size) {
    const bool spaced = before() == ' ' || at_ == 0;
    const size_t next = skipped_spaces(at_ + size);
    const bool apart = next > at_ + size;
    if (at_ == 0 && apart && size == 1) return skip();  // a list's bullet
    if (!options_.expressions) return close(size);
    if (open_ && next >= text_.size()) return extend(at_ + size, true);  // "18-" is not 18
    const bool operand = operand_at(next) || (next < text_.size() && text_[next] == '-');
    if (operand) return extend(at_ + size, true);
    // "5-year", "5 - that is all"
    if (open_ && !spaced && !apart && size == 1 && next < text_.size() && is_letter(text_[next])) return compound(next);
    return spaced && apart ? add(Kind::comma, at_ + size) : close(size);
  }
  void compound(size_t begin) {
    const bool number = is_digit(text_[at_ - 1]) || text_[at_ - 1] == '$';
    size_t end = begin;
    while (end < text_.size() && (is_letter(text_[end]) || text_[end] == '-')) ++end;
    const std::string_view words = text_.substr(begin, end - begin), first = words.substr(0, words.find('-'));
    close(1);
    add(Kind::word, end);
    parts_.back().hyphenated = number && !math::is_unit(lower(first)) && lower(first) != "dollar";
  }
  void equality(size_t size) {
    if (open_) return extend(at_ + size, true);
    if (options_.expressions) return add(Kind::colon, at_ + size);
    close(size);
  }
  void colon() {
    const size_t next = skipped_spaces(at_ + 1);
    const bool apart = next > at_ + 1, spaced = before() == ' ';
    if (!open_ || !operand_at(next)) return add(Kind::colon, at_ + 1);
    const bool label = parts_.size() >= 2 && parts_[parts_.size() - 2].kind == Kind::word &&
                       contains(numbered, parts_[parts_.size() - 2].word);
    if (apart && !spaced && label) return add(Kind::colon, at_ + 1);
    extend(at_ + 1, true);
  }
  // "!" is a factorial unless it ends the sentence.
  void bang() {
    if (!open_) return skip();
    const size_t next = skipped_spaces(at_ + 1);
    const bool ends = next >= text_.size() || text_.find_first_not_of(" *\"'!)\n", at_) == std::string_view::npos ||
                      (next > at_ + 1 && text_[next] >= 'A' && text_[next] <= 'Z');
    if (ends && !starts_with("!=")) return close();
    extend(at_ + 1, starts_with("!="));
  }
  void slash() {
    const size_t next = skipped_spaces(at_ + 1);
    if (open_ && operand_at(next)) return extend(at_ + 1, true);
    close();
  }

  std::string_view text_;
  StatementOptions options_;
  std::deque<MathSpan> formulas_;
  std::vector<StatementPart> parts_;
  size_t at_ = 0;
  bool open_ = false;        // the last part is an expression that may continue
  bool after_sign_ = false;  // it ends in an operator
};

// "approx. 5", "2:15 p.m. today"
bool is_abbreviation(std::string_view word) {
  static constexpr std::string_view known[] = {"approx", "ca",  "no", "vs", "i.e", "e.g", "a.m", "p.m",
                                               "mr",     "mrs", "ms", "dr", "st",  "ft",  "sq"};
  return contains(known, lower(word));
}

}  // namespace

std::vector<StatementPart> statement_parts(std::string_view text, const StatementOptions& options) {
  return StatementReader(text, options).run();
}

bool is_double_factorial(std::string_view text) {
  constexpr std::string_view sign = "!!";
  text = trimmed(text);
  return text.size() > sign.size() && text.ends_with(sign) &&
         std::all_of(text.begin(), text.end() - static_cast<ptrdiff_t>(sign.size()), is_digit);
}

bool is_number_word(std::string_view word) { return contains(number_words, word); }

size_t sentence_end(std::string_view text, size_t begin) {
  std::deque<MathSpan> formulas = find_formulas(text.substr(begin));
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    while (!formulas.empty() && formulas.front().end + begin <= i) formulas.pop_front();
    if (!formulas.empty() && formulas.front().begin + begin == i) {
      i = formulas.front().end + begin - 1;
      continue;
    }
    const char c = text[i];
    if (c == '{') ++depth;
    if (c == '}' && depth > 0) --depth;
    // A line may end inside braces.
    const bool inside =
        depth > 0 && i + 1 < text.size() && text[i + 1] != '\n' && text.find('}', i) != std::string_view::npos;
    if (c == '\n' && !inside) return i;
    if ((c != '.' && c != '!' && c != '?') || i + 1 >= text.size() || !is_space(text[i + 1])) continue;
    size_t word = i;
    while (word > begin && !is_space(text[word - 1]) && text[word - 1] != '(') --word;
    size_t next = i + 1;
    while (next < text.size() && text[next] == ' ') ++next;
    const bool sentence_starts = next >= text.size() || text[next] == '\n' || (text[next] >= 'A' && text[next] <= 'Z');
    if (c == '.' && is_abbreviation(text.substr(word, i - word)) && !sentence_starts) continue;
    // "5! ways" is a factorial.
    if (c == '!' && !sentence_starts) continue;
    return i + (c == '.' ? 0 : 1);
  }
  return text.size();
}

}  // namespace hone
