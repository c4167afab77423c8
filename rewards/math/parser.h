#pragma once
// The recursive-descent parser of expr.h's trees, included only by parse.cpp. It has one function per level of
// precedence: list, relation, ratio, union, sum, product, power, primary. A text that does not parse sets failed_,
// which ends every loop.
#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>

#include "rewards/answers/text.h"
#include "rewards/answers/units.h"
#include "rewards/answers/words.h"
#include "rewards/math/expr.h"

namespace hone::math {

class Parser {
 public:
  Parser(Tree& tree, bool any_unit) : tree_(tree), text_(tree.source), any_unit_(any_unit) {
    tree_.nodes.reserve(std::min(max_nodes, text_.size() + 4));
  }

  int32_t run() {
    const int32_t root = groups();
    spaces();
    return failed_ || at_ < text_.size() ? -1 : root;
  }

 private:
  // -- characters
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  std::string_view rest() const { return text_.substr(at_); }
  void spaces() {
    while (peek() == ' ' || (peek() == '&' && matrix_depth_ == 0)) ++at_;
  }
  bool take(std::string_view what) {
    spaces();
    if (!rest().starts_with(what)) return false;
    if (is_letter(what.back()) && is_letter(peek(what.size()))) return false;
    at_ += what.size();
    return true;
  }
  size_t letters_end(size_t from) const {
    while (from < text_.size() && is_letter(text_[from])) ++from;
    return from;
  }
  // Returns the content of the {...} at the cursor, with balanced brackets, and moves the cursor past it.
  std::string_view braced() {
    if (!take("{")) {
      failed_ = true;
      return {};
    }
    const size_t begin = at_;
    for (int depth = 1; at_ < text_.size(); ++at_) {
      if (text_[at_] == '{') ++depth;
      if (text_[at_] == '}' && --depth == 0) return text_.substr(begin, at_++ - begin);
    }
    failed_ = true;
    return {};
  }

  // -- nodes
  int32_t fail() {
    failed_ = true;
    return 0;
  }
  int32_t add(Kind kind, size_t begin = 0, size_t end = 0) {
    if (tree_.nodes.size() >= max_nodes) failed_ = true;
    if (failed_ && !tree_.nodes.empty()) return 0;
    tree_.nodes.push_back({.kind = kind, .begin = static_cast<uint32_t>(begin), .end = static_cast<uint32_t>(end)});
    return static_cast<int32_t>(tree_.nodes.size() - 1);
  }
  Node& node(int32_t i) { return tree_.nodes[static_cast<size_t>(i)]; }
  int32_t add(Kind kind, std::initializer_list<int32_t> children, size_t begin = 0, size_t end = 0) {
    return add_all(kind, std::span<const int32_t>(children.begin(), children.size()), begin, end);
  }
  int32_t add_all(Kind kind, std::span<const int32_t> children, size_t begin = 0, size_t end = 0) {
    const int32_t out = add(kind, begin, end);
    if (failed_) return 0;
    for (size_t i = children.size(); i-- > 0;) {
      node(children[i]).next = node(out).first;
      node(out).first = children[i];
      node(out).size = static_cast<uint16_t>(node(out).size + node(children[i]).size);
    }
    node(out).count = static_cast<uint16_t>(children.size());
    return out;
  }

  // -- lists
  // Parses "a, b" and "a and b" within groups separated by ';'. If there are several groups, a group of several values
  // is a tuple (p=5,q=2; p=7,q=2).
  int32_t groups() {
    std::vector<std::vector<int32_t>> all;
    bool alternatives = true;
    do {
      std::vector<int32_t> items;
      do items.push_back(relation());
      while (!failed_ && separator(&alternatives));
      all.push_back(std::move(items));
    } while (!failed_ && take(";"));
    if (all.size() == 1 && all[0].size() == 2 && !failed_ && continues(last_quantity(all[0][0]), all[0][1]))
      return add(Kind::add, {all[0][0], all[0][1]});
    if (all.size() == 1) {
      if (all[0].size() == 1) return all[0][0];
      const int32_t list = add_all(Kind::list, all[0]);
      if (!failed_ && alternatives) node(list).op = '|';
      return list;
    }
    std::vector<int32_t> out;
    for (const auto& items : all) {
      out.push_back(items.size() == 1 ? items[0] : add_all(Kind::tuple, items));
      if (!failed_ && items.size() > 1) {
        node(out.back()).open = '(';
        node(out.back()).close = ')';
      }
    }
    return add_all(Kind::list, out);
  }
  // Sets `alternatives` to false unless the separator is "or".
  bool separator(bool* alternatives = nullptr) {
    spaces();
    const bool comma = take(",");
    const size_t before = at_;
    const bool word = take("and") || take("or") || text_separator();
    const bool is_or = word && text_.substr(before, at_ - before).find("or") != std::string_view::npos;
    if (alternatives && (comma || word)) *alternatives = *alternatives && is_or;
    return comma || word;
  }
  // \text{ and }, \text{ for part (a) and }: a separator if it ends in one.
  bool text_separator() {
    const size_t before = at_;
    if (take("\\text")) {
      const std::string_view words = trimmed(braced());
      if (!failed_ &&
          (words == "and" || words == "or" || words == "," || words.ends_with(" and") || words.ends_with(" or")))
        return true;
    }
    at_ = before;
    return false;
  }

  // -- relations and ratios
  char relation_sign() {
    spaces();
    static constexpr std::pair<std::string_view, char> signs[] = {
        {"=", '='},     {"<", '<'},        {">", '>'},    {"\\le", 'L'},    {"\\ge", 'G'},
        {"\\neq", '!'}, {"\\approx", '~'}, {"\\in", 'i'}, {"\\equiv", '='}, {"\\sim", '~'}};
    for (const auto& [spelling, sign] : signs)
      if (take(spelling)) return sign;
    return 0;
  }
  int32_t relation() {
    std::vector<int32_t> sides = {ratio()};
    while (!failed_) {
      const char sign = relation_sign();
      if (!sign) break;
      sides.push_back(ratio());
      if (!failed_) node(sides.back()).op = sign;
    }
    return sides.size() == 1 ? sides[0] : add_all(Kind::relation, sides);
  }
  int32_t ratio() {
    std::vector<int32_t> parts = {united()};
    while (!failed_ && take(":")) parts.push_back(united());
    return parts.size() == 1 ? parts[0] : add_all(Kind::ratio, parts);
  }
  int32_t united() {
    std::vector<int32_t> parts = {sum()};
    while (!failed_ && take("\\cup")) parts.push_back(sum());
    return parts.size() == 1 ? parts[0] : add_all(Kind::set_union, parts);
  }

  // -- sums and products
  int32_t sum() {
    if (++depth_ > max_depth) failed_ = true;
    int32_t left = failed_ ? 0 : signed_product();
    while (!failed_) {
      if (take("+"))
        left = sum_of(left, product());
      else if (take("-"))
        left = sum_of(left, add(Kind::negate, {product()}));
      else if (take("\\pm") || take("\\mp")) {
        const bool minus = text_[at_ - 2] == 'm';
        left = plus_minus({left, product()}, minus);
      } else
        break;
    }
    --depth_;
    return left;
  }
  int32_t plus_minus(std::initializer_list<int32_t> children, bool minus) {
    const int32_t out = add(Kind::plus_minus, children);
    node(out).op = minus ? '-' : '+';
    tree_.plus_minus = true;
    return out;
  }
  int32_t signed_product() {
    if (take("-")) return add(Kind::negate, {product()});
    if (take("\\pm")) return plus_minus({product()}, false);
    if (take("\\mp")) return plus_minus({product()}, true);
    take("+");
    return product();
  }
  // Adds matrices of equal shape elementwise, so that their sum is a matrix.
  int32_t sum_of(int32_t a, int32_t b) {
    if (failed_ || node(a).kind != Kind::matrix || node(b).kind != Kind::matrix || node(a).count != node(b).count ||
        node(a).columns != node(b).columns)
      return add(Kind::add, {a, b});
    std::vector<int32_t> cells;
    for (int32_t x = node(a).first, y = node(b).first; x >= 0 && !failed_;) {
      const int32_t next_x = node(x).next, next_y = node(y).next;
      node(x).next = node(y).next = -1;
      cells.push_back(add(Kind::add, {x, y}));
      x = next_x;
      y = next_y;
    }
    const uint16_t columns = node(a).columns;
    const int32_t out = add_all(Kind::matrix, cells);
    node(out).columns = columns;
    return out;
  }
  int32_t product() {
    const int64_t begin = static_cast<int64_t>(tree_.nodes.size());
    int32_t left = power();
    while (!failed_) {
      spaces();
      if (peek() == '*' || (peek() == '/' && peek(1) != '/')) {
        const Kind kind = peek() == '*' ? Kind::multiply : Kind::divide;
        ++at_;
        const bool minus = take("-");
        int32_t right = power();
        if (minus) right = add(Kind::negate, {right});
        left = add(kind, {left, right});
      } else if (take_multiplier(left) || take_unit(left, begin)) {
      } else if (is_digit(peek()) && last_quantity(left) >= 0) {
        left = next_quantity(left);
      } else if (starts_factor()) {
        left = juxtaposed(left);
      } else
        break;
    }
    return left;
  }
  bool is_integer(int32_t i) const {
    return tree_.at(i).kind == Kind::number && tree_.text(i).find_first_not_of("0123456789") == std::string_view::npos;
  }
  bool is_integer_fraction(int32_t i) const {
    const Node& n = tree_.at(i);
    return n.kind == Kind::divide && is_integer(n.first) && is_integer(tree_.at(n.first).next);
  }
  // 2x is a product, 1\frac{1}{2} and 1 1/2 are mixed numbers, 3 4 is neither.
  int32_t juxtaposed(int32_t left) {
    const bool digits = is_digit(peek()), integer = is_integer(left), bracket = peek() == '(';
    if (digits) {
      if (!integer) {
        const Kind kind = tree_.at(left).kind;
        if (kind == Kind::number || kind == Kind::based || kind == Kind::repeating) failed_ = true;
      } else {
        const int32_t top = power();
        if (failed_ || !take("/")) return fail();
        const int32_t fraction = add(Kind::divide, {top, power()});
        if (!failed_ && !is_integer_fraction(fraction)) failed_ = true;
        return add(Kind::add, {left, fraction});
      }
    }
    const int32_t right = power();
    if (failed_) return 0;
    const bool applied = bracket && node(left).kind == Kind::symbol;
    const int32_t out = add(integer && is_integer_fraction(right) ? Kind::add : Kind::multiply, {left, right});
    node(out).applied = applied;
    return out;
  }
  bool starts_factor() const {
    const char c = peek();
    if (is_digit(c) || c == '(' || c == '{' || (c == '.' && is_digit(peek(1))) || (c == '|' && !in_bars_)) return true;
    if (is_letter(c)) {
      const std::string_view word = text_.substr(at_, letters_end(at_) - at_);
      return word != "and" && word != "or" &&
             (is_product_of_letters(word) || is_function_name(word) || word == "pi" || word.size() <= 2);
    }
    if (c != '\\') return false;
    const std::string_view name = text_.substr(at_ + 1, letters_end(at_ + 1) - at_ - 1);
    if (name.empty()) return peek(1) == '{';
    if (is_currency_command(name)) return false;
    for (const std::string_view stop : {"cup", "le", "ge", "neq", "approx", "in", "equiv", "sim", "pm", "mp", "text",
                                        "end", "cap", "rightarrow", "setminus", "rfloor", "rceil", "over"})
      if (name == stop) return false;
    return true;
  }
  // "3 million", "3\text{ million}"
  bool take_multiplier(int32_t& left) {
    const bool command = rest().starts_with("\\text{");
    const size_t close = command ? rest().find('}') : std::string_view::npos,
                 end = command ? at_ + close + 1 : letters_end(at_);
    if (command && close == std::string_view::npos) return false;
    const int zeros =
        multiplier_zeros(command ? trimmed(text_.substr(at_ + 6, close - 6)) : text_.substr(at_, end - at_));
    if (zeros == 0) return false;
    at_ = end;
    left = add(Kind::scale, {left});
    node(left).columns = static_cast<uint16_t>(zeros);
    return true;
  }
  // Takes the words after a value, each with its power. They are a unit of measure, or name what was counted and are
  // dropped. A product whose nodes begin at `first_node` gets a unit only if none of its factors has one (the unit of 5
  // cm * 3 cm stays open).
  bool take_unit(int32_t& left, int64_t first_node) {
    spaces();
    const size_t begin = at_;
    if (!skip_unit_word()) return false;
    while (!failed_ && (skip_unit_word() || skip_divisor_unit(begin))) {}
    if (raises_counted(text_.substr(begin, at_ - begin))) failed_ = true;
    const Kind kind = tree_.at(left).kind;
    const bool measurable = last_unit_ < first_node && kind != Kind::word && kind != Kind::tuple &&
                            kind != Kind::list && kind != Kind::set && kind != Kind::set_union && kind != Kind::matrix;
    if (!failed_ && measurable && read_unit(text_.substr(begin, at_ - begin))) left = quantity(left, begin, at_);
    return true;
  }
  // Returns true for "apples^2": a power of a word that is no unit.
  static bool raises_counted(std::string_view phrase) {
    const size_t power = phrase.find('^');
    if (power == std::string_view::npos) return false;
    while (!phrase.empty() && (phrase.size() > power || !is_letter(phrase.back()))) phrase.remove_suffix(1);
    size_t begin = phrase.size();
    while (begin > 0 && is_letter(phrase[begin - 1])) --begin;
    return begin < phrase.size() && !read_unit(phrase.substr(begin));
  }
  // Takes the currency sign after a number, "5 €", unless the sign belongs to the next number.
  bool take_currency() {
    if (peek() != '\\') return false;
    const size_t end = letters_end(at_ + 1);
    size_t next = end;
    while (next < text_.size() && text_[next] == ' ') ++next;
    const bool before_number = next < text_.size() && (is_digit(text_[next]) || text_[next] == '.');
    if (before_number || !is_currency_command(text_.substr(at_ + 1, end - at_ - 1))) return false;
    at_ = end;
    return true;
  }
  // Returns true if it skipped a word.
  bool skip_unit_word() {
    spaces();
    const size_t before = at_;
    if (take_currency()) return true;
    if (text_separator()) {
      at_ = before;
      return false;
    }
    if (rest().starts_with("\\text")) {
      at_ += 5;
      const std::string_view words = trimmed(braced());
      // The words belong to the answer and are not a unit, so the text is compared as written.
      if (words == "a.m." || words == "p.m." || (!words.empty() && is_digit(words[0]))) {
        failed_ = true;
        return false;
      }
    } else if (is_letter(peek())) {
      if (!is_unit_word(before)) return false;
      at_ = letters_end(at_);
    } else
      return false;
    if (take("^")) {
      if (peek() == '{')
        braced();
      else if (at_ < text_.size())
        ++at_;
    }
    return true;
  }
  bool is_unit_word(size_t at) const {
    const size_t end = letters_end(at);
    const std::string_view word = text_.substr(at, end - at);
    const bool apart = at > 0 && text_[at - 1] == ' ', last = end == text_.size();
    if (last && apart && (word == "in" || word == "min" || word == "sec")) return true;
    if (word == "and" || word == "or" || is_function_name(word) || word == "pi" || multiplier_zeros(word) != 0)
      return false;
    if (word == "percent" || word == "pct" || word == "percentage" || is_unit(word)) return true;
    return apart && ((any_unit_ && word.size() > 2 && !is_product_of_letters(word)) || word == "per");
  }
  // Skips the second half of km/h.
  bool skip_divisor_unit(size_t begin) {
    if (peek() != '/' || !read_unit(text_.substr(begin, at_ - begin))) return false;
    const size_t before = at_++;
    spaces();
    const size_t end = letters_end(at_);
    if (rest().starts_with("\\text") ? skip_unit_word()
                                     : end > at_ && read_unit(text_.substr(at_, end - at_)).has_value()) {
      at_ = std::max(at_, end);
      return true;
    }
    at_ = before;
    return false;
  }
  int32_t quantity(int32_t value, size_t begin, size_t end) {
    return static_cast<int32_t>(last_unit_ = add(Kind::unit, {value}, begin, end));
  }
  // Returns the last quantity of a value of one or several quantities (1 hour 30 minutes); -1 if there is none.
  int32_t last_quantity(int32_t value) const {
    const Node& n = tree_.at(value);
    const int32_t last = n.kind == Kind::add ? tree_.at(n.first).next : value;
    return tree_.at(last).kind == Kind::unit ? last : -1;
  }
  // Returns true if `small` has a smaller unit of the same kind and is therefore added to `large`.
  bool continues(int32_t large, int32_t small) const {
    if (large < 0 || small < 0 || tree_.at(small).kind != Kind::unit) return false;
    const auto a = read_unit(tree_.text(large)), b = read_unit(tree_.text(small));
    return a && b && a->same_kind(*b) &&
           a->factor.top * static_cast<__int128>(b->factor.bottom) >
               b->factor.top * static_cast<__int128>(a->factor.bottom);
  }
  int32_t next_quantity(int32_t left) {
    const int64_t begin = static_cast<int64_t>(tree_.nodes.size());
    int32_t right = power();
    if (failed_ || !take_unit(right, begin) || failed_ || !continues(last_quantity(left), right)) return fail();
    return add(Kind::add, {left, right});
  }

  // -- powers
  int32_t power() {
    if (++depth_ > max_depth) failed_ = true;
    int32_t base = failed_ ? 0 : postfixed(primary());
    if (!failed_ && take("^")) base = postfixed(add(Kind::power, {base, exponent()}));
    --depth_;
    return base;
  }
  int32_t exponent() {
    spaces();
    if (take("-")) return add(Kind::negate, {exponent_factor()});
    return exponent_factor();
  }
  int32_t exponent_factor() {
    if (++depth_ > max_depth) failed_ = true;
    const int32_t base = failed_ ? 0 : primary();
    const int32_t out = !failed_ && take("^") ? add(Kind::power, {base, exponent()}) : base;
    --depth_;
    return out;
  }
  int32_t postfixed(int32_t value) {
    while (!failed_) {
      if (peek() == '!' && peek(1) != '=') {
        ++at_;
        value = add(Kind::factorial, {value});
      } else if (take("%") || take("percentage") || take("percent") || take("pct")) {
        tree_.percent = true;
        value = add(Kind::percent, {value});
      } else if (take("\\degree")) {
        const size_t begin = at_ - sizeof("degree");
        value = angle_depth_ > 0 ? add(Kind::degree, {value}) : quantity(value, begin, temperature_end());
      } else
        break;
    }
    return value;
  }

  // Returns the end of "C" or "\text{F}" after a degree sign, if it is there.
  size_t temperature_end() {
    const size_t before = at_;
    spaces();
    std::string_view scale;
    if (take("\\text")) {
      scale = trimmed(braced());
    } else {
      scale = text_.substr(at_, letters_end(at_) - at_);
      at_ += scale.size();
    }
    if (scale != "C" && scale != "F" && scale != "Celsius" && scale != "Fahrenheit") at_ = before;
    return at_;
  }

  int32_t primary();
  int32_t number();
  int32_t based_number(size_t begin);
  int32_t letters();
  int32_t symbol(size_t begin);
  int32_t command();
  int32_t bracketed();
  int32_t argument();
  int32_t function(size_t begin, size_t end);
  int32_t environment();
  int32_t text_word();

  Tree& tree_;
  std::string_view text_;
  size_t at_ = 0;
  int64_t last_unit_ = -1;  // the last unit node
  int depth_ = 0, bracket_depth_ = 0, matrix_depth_ = 0, angle_depth_ = 0;
  bool failed_ = false, in_bars_ = false, any_unit_ = false;
};

}  // namespace hone::math
