#pragma once
// Numbers as people write them in running text: "1,234.50", "$18", "-3.", ".5". Digits are compared, not doubles, so
// any length is exact.
#include <optional>
#include <string>
#include <string_view>

namespace hone {

struct NumberText {
  size_t begin = 0, end = 0;  // bytes of the text it was found in
  std::string digits;         // canonical: "-1234.5"; no leading or trailing zeros that say nothing, never "-0"
  double value = 0;
};

// The first number of a text. A number does not touch a letter, digit or underscore on its left, and at most 400
// characters of it are read. Commas between groups of three digits are thousands separators; a sign counts when it does
// not follow something it could subtract from.
std::optional<NumberText> first_number(std::string_view text);

// Digits with at most one point and a sign, no separators, as canonical digits: "007.50" is "7.5".
std::string canonical_digits(std::string_view literal);

}  // namespace hone
