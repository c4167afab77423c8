#pragma once
// What stands around a box. A box holds the answer; a factor, a sign or a denial beside it makes another answer.
#include <string>
#include <string_view>

#include "rewards/answers/spans.h"

namespace hone {

// Whether the text around a box makes another value of what the box holds: "2\boxed{18}", "-\boxed{18}",
// "\boxed{18}^2", "\sqrt{\boxed{18}}", "(17, \boxed{18})", "x > \boxed{18}". "= \boxed{18}", "\boxed{18}\text{ cm}" and
// "\boxed{18} (not 17)" do not. Time is linear in the text.
bool changes_box_value(std::string_view text, const MathSpan& box);

// Whether words beside a box deny what it holds or offer another answer: "not \boxed{18}", "\boxed{18} is wrong",
// "\boxed{18} or 19".
bool denies_box(std::string_view text, const MathSpan& box);

// The content of a box with the multiplier that follows it: "2 million" of "\boxed{2} million". after: the text behind
// the box.
std::string with_multiplier(std::string content, std::string_view after);

}  // namespace hone
