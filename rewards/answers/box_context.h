#pragma once
// Reads the text around a \boxed{}. By convention the box holds the answer, whatever formula it stands in: authors of
// MATH box the coefficient of a term or one part of a sum. Only a direct sign, factor or power, an inequality, or a
// negation changes the value.
#include <string>
#include <string_view>

#include "rewards/answers/spans.h"

namespace hone {

// Returns true for "2\boxed{18}", "-\boxed{18}", "\boxed{18}^2", "x > \boxed{18}" and "x \ne \boxed{18}". Returns false
// for "= \boxed{18}", "\boxed{18}x^3" and "\boxed{18}\text{ cm}".
bool changes_box_value(std::string_view text, const MathSpan& box);

// Returns true if words next to the box negate it or offer another answer: "not \boxed{18}", "\boxed{18} is wrong",
// "\boxed{18} or 19".
bool denies_box(std::string_view text, const MathSpan& box);

// Returns the content of a box with the multiplier that follows it: "2 million" for "\boxed{2} million". after: the
// text after the box.
std::string with_multiplier(std::string content, std::string_view after);

}  // namespace hone
