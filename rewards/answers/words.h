#pragma once
// The words the mathematical reader knows: functions, multipliers, bases.
#include <string_view>

namespace hone::math {

bool is_function_name(std::string_view name);
bool is_trigonometric(std::string_view name);
// 6 for "million"; 0 for any other word.
int multiplier_zeros(std::string_view word);
// The base that a word names: 8 for "eight"; 0 for any other word.
int base_named(std::string_view word);
// Letters that stand for a product of variables rather than a word: xy, abc, pqr.
bool is_product_of_letters(std::string_view letters);

}  // namespace hone::math
