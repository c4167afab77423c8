#include "rewards/math_words.h"

#include <algorithm>
#include <iterator>

namespace hone::math {

namespace {

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

constexpr std::string_view functions[] = {"sin", "cos", "tan", "cot",  "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
                                          "log", "ln",  "exp", "sqrt", "abs", "gcd", "lcm",    "max",    "min",    "asin", "acos", "atan"};
constexpr std::string_view trigonometric[] = {"sin", "cos", "tan", "cot", "sec", "csc"};
constexpr std::string_view units[] = {"cm",   "mm",     "km",       "kg",    "mg",     "ml",     "ft",    "lb",    "lbs",        "hr",        "hrs",
                                      "mph",  "kph",    "inch",     "feet",  "foot",   "degree", "meter", "metre", "centimeter", "kilometer", "mile",
                                      "yard", "second", "minute",   "hour",  "day",    "week",   "month", "year",  "inches",     "deg",       "sec",
                                      "min",  "gram",   "kilogram", "liter", "square", "cubic",  "unit",  "radian"};

}  // namespace

bool is_function_name(std::string_view name) { return contains(functions, name); }

bool is_trigonometric(std::string_view name) { return contains(trigonometric, name); }

bool is_unit(std::string_view word) {
  return contains(units, word) || (word.size() > 3 && word.back() == 's' && contains(units, word.substr(0, word.size() - 1)));
}

int multiplier_zeros(std::string_view word) {
  if (word == "hundred") return 2;
  if (word == "thousand") return 3;
  if (word == "million") return 6;
  if (word == "billion") return 9;
  if (word == "trillion") return 12;
  return 0;
}

bool is_product_of_letters(std::string_view letters) {
  if (letters.size() <= 2) return true;
  for (const std::string_view alphabet : {"abcd", "wxyz", "pqrst", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "klmn", "uvwxy"})
    if (letters.find_first_not_of(alphabet) == std::string_view::npos) return true;
  return false;
}

}  // namespace hone::math
