#include "rewards/answers/words.h"

#include <algorithm>
#include <iterator>

namespace hone::math {

namespace {

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

constexpr std::string_view functions[] = {"sin",    "cos",  "tan",  "cot",  "sec", "csc",  "arcsin", "arccos",
                                          "arctan", "sinh", "cosh", "tanh", "log", "ln",   "exp",    "sqrt",
                                          "abs",    "gcd",  "lcm",  "max",  "min", "asin", "acos",   "atan"};
constexpr std::string_view trigonometric[] = {"sin", "cos", "tan", "cot", "sec", "csc"};
constexpr std::string_view bases[] = {"two", "three",  "four",   "five",     "six",      "seven",   "eight",  "nine",
                                      "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"};
constexpr std::string_view months[] = {"january", "february", "march",     "april",   "may",      "june",
                                       "july",    "august",   "september", "october", "november", "december",
                                       "jan",     "feb",      "sept",      "oct",     "nov"};

}  // namespace

bool is_function_name(std::string_view name) { return contains(functions, name); }

bool is_trigonometric(std::string_view name) { return contains(trigonometric, name); }

bool is_month(std::string_view word) { return contains(months, word); }

int multiplier_zeros(std::string_view word) {
  if (word == "hundred") return 2;
  if (word == "thousand") return 3;
  if (word == "million") return 6;
  if (word == "billion") return 9;
  if (word == "trillion") return 12;
  return 0;
}

int base_named(std::string_view word) {
  const auto found = std::find(std::begin(bases), std::end(bases), word);
  return found == std::end(bases) ? 0 : static_cast<int>(found - std::begin(bases)) + 2;
}

bool is_product_of_letters(std::string_view letters) {
  if (letters.size() <= 2) return true;
  for (const std::string_view alphabet : {"abcd", "wxyz", "pqrst", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "klmn", "uvwxy"})
    if (letters.find_first_not_of(alphabet) == std::string_view::npos) return true;
  return false;
}

}  // namespace hone::math
