#pragma once
// Text for error messages about unknown names.
#include <span>
#include <string>
#include <string_view>

namespace hone {

// "; did you mean 'learning_rate'?" with the nearest known name by edit distance; "" if none is near.
std::string suggestion(std::string_view name, std::span<const std::string> known);
// "a, b, c"
std::string join(std::span<const std::string> words, std::string_view separator = ", ");

}  // namespace hone
