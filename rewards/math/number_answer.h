#pragma once
// The one number that an expression or a completion gives.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rewards/answers/number_text.h"

namespace hone {

// The value of an expression that is one number: "$1,234.50", "5/2", "1 1/2", "\frac{5}{2}", "1e5", "x = 3", "3 + 4 =
// 7". Nothing for anything else: "2^10", "3-4", "10:30", "2x", "2x = 3", "3 = 4", "x > 3", "(1, 2)". A fraction without
// a finite decimal has digits like "5/3". begin and end are not set.
std::optional<NumberText> number_value(std::string_view expression);

// The number a completion gives: that of the last \boxed{} unless a marker is required, else the value after the last
// occurrence of the first marker (in lower case) that a value follows, else the last one of the text. Nothing if that
// is no single number ("5 or 6", "2^10") or only supposed ("Let x = 5").
std::optional<NumberText> number_answer(std::string_view completion, const std::vector<std::string>& markers,
                                        bool require_marker = false);

}  // namespace hone
