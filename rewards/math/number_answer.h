#pragma once
// Reads the single number that an expression or a completion gives.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rewards/answers/number_text.h"

namespace hone {

// Returns the value of an expression that is one number: "$1,234.50", "5/2", "1 1/2", "\frac{5}{2}", "1e5", "x = 3", "3
// + 4 = 7". Returns nothing for any other text: "2^10", "3-4", "10:30", "2x", "2x = 3", "3 = 4", "x > 3", "(1, 2)". A
// fraction without a finite decimal has digits like "5/3". begin and end are not set.
std::optional<NumberText> number_value(std::string_view expression);

// Returns the number that a completion gives. In order of preference: the last \boxed{} unless a marker is required;
// the value after the last occurrence of the first marker (lower case) that a value follows; the last value of the
// text. Returns nothing if that value is not a single number ("5 or 6", "2^10") or is only a supposition ("Let x = 5").
std::optional<NumberText> number_answer(std::string_view completion, const std::vector<std::string>& markers,
                                        bool require_marker = false);

}  // namespace hone
