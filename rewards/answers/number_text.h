#pragma once
// Numbers in running text: "1,234.50", "$18", "-3.", ".5". Digits are compared, not doubles, so a number of any length
// is exact.
#include <optional>
#include <string>
#include <string_view>

namespace hone {

struct NumberText {
  size_t begin = 0, end = 0;  // byte range in the searched text
  std::string digits;         // canonical: "-1234.5"; no insignificant zeros, never "-0"
  double value = 0;
};

// Returns the first number of a text. A number does not touch a letter, digit or underscore on its left. At most 400
// characters of a number are read. Commas between groups of three digits are thousands separators. A sign counts unless
// it follows an operand, where it is a minus.
std::optional<NumberText> first_number(std::string_view text);

// Returns the canonical form of digits with at most one point and a sign, without separators: "007.50" gives "7.5".
std::string canonical_digits(std::string_view literal);

}  // namespace hone
