// Primaries of the parser: numbers, letters, commands, brackets, functions and environments.
#include <charconv>

#include "rewards/math/parser.h"
#include "rewards/math/point.h"

namespace hone::math {

int32_t Parser::primary() {
  spaces();
  const char c = peek();
  if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
  if (is_letter(c)) return letters();
  if (c == '\\' && is_letter(peek(1))) return command();
  if (c == '(' || c == '[' || c == '{' || (c == '\\' && peek(1) == '{')) return bracketed();
  if (c == '|' && !in_bars_) {
    in_bars_ = true;
    ++at_;
    const int32_t inside = sum();
    in_bars_ = false;
    if (!take("|")) failed_ = true;
    const size_t name = text_.size();  // an empty name, since "abs" is not in the source
    return add(Kind::function, {inside}, name, name);
  }
  return fail();
}

// Parses digits with grouping: "1,000" and "1 000" outside brackets, "1_000" anywhere. Separators stay in the node's
// text, which may therefore contain ',', ' ' and '_'.
int32_t Parser::number() {
  const size_t begin = at_;
  const auto three_digits = [&](size_t k) {
    return is_digit(peek(k)) && is_digit(peek(k + 1)) && is_digit(peek(k + 2)) && !is_digit(peek(k + 3));
  };
  while (is_digit(peek())) ++at_;
  const size_t head = at_ - begin;
  if (head >= 1 && head <= 3) {
    const char mark = peek();
    const bool grouped = (mark == ',' && bracket_depth_ == 0 && text_[begin] != '0') ||
                         (mark == ' ' && bracket_depth_ == 0 && matrix_depth_ == 0) || mark == '_';
    if (grouped && !(mark == ' ' && peek(4) == '/'))
      while (peek() == mark && three_digits(1)) at_ += 4;
  }
  const bool point = peek() == '.' && (is_digit(peek(1)) || text_.substr(at_ + 1).starts_with("\\overline"));
  if (point)
    for (++at_; is_digit(peek());) ++at_;
  if (rest().starts_with("\\overline")) {
    at_ += 9;
    const std::string_view digits = trimmed(braced());
    const bool repeats = point && !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
    return add(repeats ? Kind::repeating : Kind::opaque, begin, at_);
  }
  if (point) tree_.decimal = true;
  if (peek() == 'e' || peek() == 'E') {
    const size_t sign = peek(1) == '-' || peek(1) == '+' ? 1 : 0;
    if (is_digit(peek(1 + sign)))
      for (at_ += 2 + sign; is_digit(peek());) ++at_;
  }
  if (const int32_t based = based_number(begin); based >= 0) return based;
  return add(Kind::number, begin, at_);
}

// Parses the rest of a number in another base, 1011_2 or 2E_{16}, after its first digits. Returns -1 if there is no
// base, and an opaque node if a digit is not in its base.
int32_t Parser::based_number(size_t begin) {
  size_t end = at_;
  while (end < text_.size() && text_[end] >= 'A' && text_[end] <= 'Z') ++end;
  if (end >= text_.size() || text_[end] != '_') return -1;
  const std::string_view digits = text_.substr(begin, end - begin);
  const size_t before = std::exchange(at_, end + 1);
  std::string_view base = rest();
  if (peek() == '{') {
    base = braced();
  } else if (base.starts_with("\\text")) {
    at_ += 5;
    base = braced();
  } else {
    while (is_digit(peek())) ++at_;
    base = text_.substr(end + 1, at_ - end - 1);
  }
  base = trimmed(base);
  if (base.starts_with("\\text{") && base.ends_with('}')) base = trimmed(base.substr(6, base.size() - 7));
  int value = base_named(base);
  if (value == 0 && std::from_chars(base.data(), base.data() + base.size(), value).ptr != base.data() + base.size())
    value = 0;
  const bool valid = value >= 2 && value <= 36 && std::all_of(digits.begin(), digits.end(), [value](char c) {
                       return c == '.' || digit_value(c) < value;
                     });
  if (!valid && end != before) {
    at_ = before;
    return -1;
  }
  const int32_t out = add(valid ? Kind::based : Kind::opaque, begin, valid ? end : at_);
  if (valid && !failed_) node(out).columns = static_cast<uint16_t>(value);
  return out;
}

// Parses a letter or a command with its primes and subscript.
int32_t Parser::symbol(size_t begin) {
  while (peek() == '\'') ++at_;
  if (peek() == '_') {
    ++at_;
    if (peek() == '{')
      braced();
    else if (at_ < text_.size())
      ++at_;
  }
  return add(Kind::symbol, begin, at_);
}

int32_t Parser::letters() {
  const size_t begin = at_, end = letters_end(at_);
  const std::string_view run = text_.substr(begin, end - begin);
  if (is_function_name(run)) {
    at_ = end;
    return function(begin, end);
  }
  if (run == "pi" || run == "inf" || run == "infinity" || run == "oo") {
    at_ = end;
    return run == "pi" ? add(Kind::symbol, begin, end) : add(Kind::infinity);
  }
  if (!is_product_of_letters(run)) {
    at_ = end;
    while (is_letter(peek()) || peek() == ' ' || is_digit(peek()) || peek() == '\'' || peek() == '-' || peek() == '.')
      ++at_;
    return add(Kind::word, begin, at_);
  }
  ++at_;
  return symbol(begin);
}

int32_t Parser::text_word() {
  const size_t content = text_.find('{', at_) + 1;
  const std::string_view words = braced();
  if (failed_) return 0;
  std::string_view inner = trimmed(words);
  if (inner.size() >= 2 && inner.front() == '(' && inner.back() == ')') inner = inner.substr(1, inner.size() - 2);
  const size_t begin = inner.empty() ? content : static_cast<size_t>(inner.data() - text_.data());
  const bool digits = !inner.empty() && inner.find_first_not_of("0123456789") == std::string_view::npos;
  return add(digits ? Kind::number : Kind::word, begin, begin + inner.size());
}

int32_t Parser::command() {
  const size_t begin = at_, end = letters_end(at_ + 1);
  const std::string_view name = text_.substr(begin + 1, end - begin - 1);
  at_ = end;
  if (name == "frac") {
    const int32_t top = argument();
    return add(Kind::divide, {top, argument()});
  }
  if (name == "text") return text_word();
  if (name == "begin") return environment();
  if (name == "infty") return add(Kind::infinity);
  if (name == "mathbb" && rest().starts_with("{R}")) {  // (-\infty, \infty)
    braced();
    const int32_t low = add(Kind::negate, {add(Kind::infinity)}), out = add(Kind::tuple, {low, add(Kind::infinity)});
    node(out).open = '(';
    node(out).close = ')';
    return out;
  }
  if (name == "emptyset") return add_all(Kind::set, {});
  if (name == "lfloor" || name == "lceil") {
    const int32_t inside = sum();
    if (!take(name == "lfloor" ? "\\rfloor" : "\\rceil")) failed_ = true;
    return add(Kind::function, {inside}, begin + 1, end);
  }
  if (name == "boxed") return argument();
  if (is_currency_command(name)) return quantity(power(), begin, end);
  if (name == "binom") {
    const int32_t top = argument();
    return add(Kind::function, {top, argument()}, begin + 1, end);
  }
  if (is_function_name(name)) return function(begin + 1, end);
  spaces();
  if (peek() == '{') {  // \overline{AB}, \vec{v}: kept as written
    braced();
    return add(Kind::opaque, begin, at_);
  }
  at_ = end;
  return symbol(begin);
}

// Parses the argument of a command without braces: one digit, one letter or one command.
int32_t Parser::argument() {
  spaces();
  if (is_digit(peek())) {
    ++at_;
    return add(Kind::number, at_ - 1, at_);
  }
  if (is_letter(peek())) {
    ++at_;
    return add(Kind::symbol, at_ - 1, at_);
  }
  return primary();
}

// Parses a function after its name: [order], _base, ^power and the argument. An argument without brackets reaches to
// the next function or sign.
int32_t Parser::function(size_t begin, size_t end) {
  const std::string_view name = text_.substr(begin, end - begin);
  if (++depth_ > max_depth) failed_ = true;
  if (failed_) return 0;
  int32_t order = -1, base = -1, raised = -1;
  if (name == "sqrt" && take("[")) {
    order = sum();
    if (!take("]")) failed_ = true;
  }
  if (take("_")) base = argument();
  if (name != "sqrt" && take("^")) raised = exponent();
  spaces();
  int32_t value;
  angle_depth_ += is_trigonometric(name) ? 1 : 0;
  if (name == "sqrt" && peek() != '(') {
    value = argument();
  } else if (peek() == '(' || peek() == '{') {
    value = bracketed();
  } else {
    value = power();
    for (spaces(); !failed_ && starts_factor() && peek() != '(' &&
                   !(peek() == '\\' && is_function_name(text_.substr(at_ + 1, letters_end(at_ + 1) - at_ - 1)));
         spaces())
      value = add(Kind::multiply, {value, power()});
  }
  angle_depth_ -= is_trigonometric(name) ? 1 : 0;
  --depth_;
  int32_t out = order >= 0 ? add(Kind::function, {value, order}, begin, end) : add(Kind::function, {value}, begin, end);
  if (base >= 0) out = add(Kind::divide, {out, add(Kind::function, {base}, begin, end)});
  return raised >= 0 ? add(Kind::power, {out, raised}) : out;
}

int32_t Parser::bracketed() {
  if (++depth_ > max_depth) failed_ = true;
  if (failed_) return 0;
  const bool group = peek() == '{', set = peek() == '\\';
  const char open = set ? '{' : peek();
  at_ += set ? 2 : 1;
  bracket_depth_ += group ? 0 : 1;
  const bool bars = std::exchange(in_bars_, false);
  std::vector<int32_t> items;
  spaces();
  const bool empty = (set && rest().starts_with("\\}")) || (!set && (peek() == ')' || peek() == ']'));
  if (!empty) do {
      items.push_back(relation());
      if (group && take("\\over")) items.back() = add(Kind::divide, {items.back(), relation()});
    } while (!failed_ && (separator() || (!group && take(";"))));
  in_bars_ = bars;
  bracket_depth_ -= group ? 0 : 1;
  --depth_;
  spaces();
  const char close = peek();
  const bool closes = set ? rest().starts_with("\\}") : group ? close == '}' : close == ')' || close == ']';
  if (failed_ || !closes) return fail();
  at_ += set ? 2 : 1;
  if (set) return add_all(Kind::set, items);
  if (items.size() == 1) return items[0];
  if (items.empty()) return fail();
  if (group) return add_all(Kind::list, items);
  const int32_t out = add_all(Kind::tuple, items);
  node(out).open = open;
  node(out).close = close;
  return out;
}

int32_t Parser::environment() {
  const std::string_view name = braced();
  if (name == "array") braced();
  if (++depth_ > max_depth) failed_ = true;
  if (failed_ || !(name.ends_with("matrix") || name == "array")) return fail();
  ++matrix_depth_;
  std::vector<int32_t> cells;
  size_t columns = 0, rows = 0, in_row = 0;
  while (!failed_) {
    cells.push_back(relation());
    ++in_row;
    if (take("&")) continue;
    if (rows == 0) columns = in_row;
    if (in_row != columns) failed_ = true;
    ++rows;
    in_row = 0;
    const bool row_ends = take("\\\\");
    if (take("\\end")) break;
    if (!row_ends) failed_ = true;
  }
  --matrix_depth_;
  --depth_;
  braced();
  const int32_t out = add_all(Kind::matrix, cells);
  node(out).columns = static_cast<uint16_t>(columns);
  return out;
}

Tree parse(std::string cleaned, bool any_unit) {
  Tree tree;
  if (cleaned.empty() || cleaned.size() > max_source) return tree;
  tree.source = std::move(cleaned);
  tree.root = Parser(tree, any_unit).run();
  return tree;
}

}  // namespace hone::math
