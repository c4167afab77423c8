#pragma once
#include <string>

namespace hone {

// printf into a string, for numbers that people read. Numbers that programs read back use number_text (core/io/json.h).
[[gnu::format(printf, 1, 2)]] std::string format_text(const char* format, ...);

}  // namespace hone
