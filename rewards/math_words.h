#pragma once
// The words the mathematical reader knows: functions, units, multipliers.
#include <string_view>

namespace hone::math {

bool is_function_name(std::string_view name);
bool is_trigonometric(std::string_view name);
// cm, hours, degrees, ...: dropped after a number whatever the policy.
bool is_unit(std::string_view word);
// 6 for "million"; 0 for any other word.
int multiplier_zeros(std::string_view word);
// Letters that stand for a product of variables rather than a word: xy, abc, pqr.
bool is_product_of_letters(std::string_view letters);

}  // namespace hone::math
