#pragma once
// Checks of UTF-8.
#include <cstddef>
#include <string_view>

namespace hone {

inline constexpr std::string_view utf8_bom = "\xEF\xBB\xBF";

// The length of the valid UTF-8 character at the front of text, or 0.
size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace hone
