#pragma once
// Whether an answer means the same as the reference. Both are mathematics in LaTeX or plain notation, or a few words.
#include <string_view>

namespace hone {

struct MathPolicy {
  // The answer has to be finished and in the reference's form: an integer is written as one (not 10/2 or 2^{10}),
  // fractions are in the reference's terms, decimals are exact, lists and sets are in order, only common units may
  // follow a number, percent signs are ignored.
  bool strict = false;
  // Where a decimal is compared with anything else, both are rounded to so many decimals; they must also agree to half
  // as many significant digits.
  int precision = 6;
  // Variables of the same roles may have other names: f(y) for f(x).
  bool any_names = false;
  // An inequality is accepted where the reference is an interval (the other way round always).
  bool inequality_for_interval = false;
};

// Not symmetric: the reference comes first.
bool math_equal(std::string_view reference, std::string_view answer, const MathPolicy& policy = {});

// Whether a chain of equalities states its last side: "x = 18", "9 * 2 = 18", "Area = 18", with rounding "10/3 = 3.33";
// not "2x = 18" or "0 = 18". A chain whose sides are no mathematics states it.
bool states_last_side(std::string_view chain);

}  // namespace hone
