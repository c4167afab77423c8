#pragma once
// Numbers as people write them in running text: "1,234.50", "$18", "-3.", ".5". Digits are compared, not doubles, so
// any length is exact.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// The value of an expression that is one number: "$1,234.50", "5/2", "1 1/2", "\frac{5}{2}", "1e5", "x = 3", "3 + 4 =
// 7". Nothing for anything else: "2^10", "3-4", "10:30", "2x", "(1, 2)". A fraction without a finite decimal has digits
// like "5/3". begin and end are not set.
std::optional<NumberText> number_value(std::string_view expression);

// The number a completion gives: that of the last \boxed{} unless a marker is required, else the value after the last
// occurrence of the first marker (in lower case) that a value follows, else the last one of the text. Nothing if that
// is no single number ("5 or 6", "2^10").
std::optional<NumberText> number_answer(std::string_view completion, const std::vector<std::string>& markers,
                                        bool require_marker = false);

// Digits with at most one point and a sign, no separators, as canonical digits: "007.50" is "7.5".
std::string canonical_digits(std::string_view literal);

}  // namespace hone
