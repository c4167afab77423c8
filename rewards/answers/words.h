#pragma once
// Words that the parser of mathematics knows: functions, multipliers, bases.
#include <string_view>

namespace hone::math {

bool is_function_name(std::string_view name);
bool is_trigonometric(std::string_view name);
// Returns true for the name of a month in lower case: "may", "sept".
bool is_month(std::string_view word);
// Returns the power of ten of a multiplier: 6 for "million"; 0 for any other word.
int multiplier_zeros(std::string_view word);
// Returns the number base that a word names: 8 for "eight"; 0 for any other word.
int base_named(std::string_view word);
// Returns true if letters are a product of variables and not a word: xy, abc, pqr.
bool is_product_of_letters(std::string_view letters);

}  // namespace hone::math
