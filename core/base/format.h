#pragma once
#include <string>

namespace hone {

// printf into a string, for numbers that people read (those that programs read back are number_text's, core/io/json.h).
[[gnu::format(printf, 1, 2)]] std::string format_text(const char* format, ...);

}  // namespace hone
