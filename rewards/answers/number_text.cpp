#include "rewards/answers/number_text.h"

#include <charconv>

#include "rewards/answers/text.h"

namespace hone {

static constexpr size_t longest_number = 400;

std::string canonical_digits(std::string_view literal) {
  bool negative = false;
  if (!literal.empty() && (literal[0] == '-' || literal[0] == '+')) {
    negative = literal[0] == '-';
    literal.remove_prefix(1);
  }
  const size_t point = literal.find('.');
  std::string_view whole = literal.substr(0, point),
                   fraction = point == std::string_view::npos ? std::string_view() : literal.substr(point + 1);
  while (!whole.empty() && whole.front() == '0') whole.remove_prefix(1);
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  std::string out(negative && !(whole.empty() && fraction.empty()) ? "-" : "");
  out += whole.empty() ? "0" : whole;
  if (!fraction.empty()) (out += '.') += fraction;
  return out;
}

// Reads the number whose first digit or point is text[at]. Returns nothing if there is no digit.
static std::optional<NumberText> number_at(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at, longest_number);
  std::string literal;
  size_t i = 0;
  while (i < rest.size() && is_digit(rest[i])) literal += rest[i++];
  const auto digit_from = [&](size_t k) { return k < rest.size() && is_digit(rest[k]); };
  if (i >= 1 && i <= 3)
    while (i < rest.size() && rest[i] == ',' && digit_from(i + 1) && digit_from(i + 2) && digit_from(i + 3) &&
           !digit_from(i + 4)) {
      literal.append(rest.substr(i + 1, 3));
      i += 4;
    }
  if (i < rest.size() && rest[i] == '.' && digit_from(i + 1)) {
    literal += rest[i++];
    while (digit_from(i)) literal += rest[i++];
  }
  if (i == 0) return std::nullopt;
  const size_t end = at + i;
  NumberText out;
  // Includes a sign before the number or its currency mark, unless it is a minus between two operands.
  size_t begin = at;
  while (begin > 0 && (text[begin - 1] == '$' || text[begin - 1] == '\\')) --begin;
  if (begin > 0 && (text[begin - 1] == '-' || text[begin - 1] == '+')) {
    size_t before = begin - 1;
    while (before > 0 && text[before - 1] == ' ') --before;
    const char c = before > 0 ? text[before - 1] : '\0';
    const bool adjoins = before + 1 == begin;
    if (!is_digit(c) && c != ')' && c != '%' && !(adjoins && is_letter(c))) {
      if (text[begin - 1] == '-') literal.insert(literal.begin(), '-');
      at = begin - 1;
    }
  }
  out.begin = at;
  out.end = end;
  std::from_chars(literal.data(), literal.data() + literal.size(), out.value);
  out.digits = canonical_digits(literal);
  return out;
}

// Returns true if a number may start at text[at]: a digit, or a point before a digit, that does not touch a longer word
// or number on its left.
static bool starts_number(std::string_view text, size_t at) {
  const char c = text[at], left = at > 0 ? text[at - 1] : ' ';
  if (c == '.')
    return at + 1 < text.size() && is_digit(text[at + 1]) && !is_digit(left) && !is_letter(left) && left != '.';
  if (!is_digit(c) || is_digit(left) || is_letter(left) || left == '_') return false;
  return !(left == '.' && at >= 2 && is_digit(text[at - 2])) && !(left == '.' && starts_number(text, at - 1));
}

std::optional<NumberText> first_number(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at)
    if (starts_number(text, at)) return number_at(text, at);
  return std::nullopt;
}

}  // namespace hone
