#pragma once
// Compares an answer with the reference. Both are mathematics in LaTeX or plain notation, or a few words.
#include <string_view>

namespace hone {

struct MathPolicy {
  // The answer must be finished and in the reference's form. An integer is written as one (not 10/2 or 2^{10}).
  // Fractions are in the reference's terms, decimals are exact, lists and sets are in order. Only common units may
  // follow a number. Percent signs are ignored.
  bool strict = false;
  // Number of decimals to which a decimal and another number are rounded before they are compared. They must also agree
  // to half as many significant digits.
  int precision = 6;
  // Accept other names for variables in the same roles: f(y) for f(x).
  bool any_names = false;
  // Accept an inequality if the reference is an interval. An interval for an inequality is always accepted.
  bool inequality_for_interval = false;
};

// Returns true if the answer equals the reference. Not symmetric.
bool math_equal(std::string_view reference, std::string_view answer, const MathPolicy& policy = {});

// Returns true if a chain of equalities states its last side: "x = 18", "9 * 2 = 18", "Area = 18", also rounded, "10/3
// = 3.33". Returns false for "2x = 18" and "0 = 18". A chain whose sides are not mathematics states its last side.
bool states_last_side(std::string_view chain);

}  // namespace hone
