#pragma once
#include <string>
#include <string_view>

namespace hone {

// printf into a string, for numbers that people read. Numbers that programs read back use number_text (core/io/json.h).
[[gnu::format(printf, 1, 2)]] std::string format_text(const char* format, ...);

// Text for a terminal or a log: control characters but newline and tab are written as \x1b or \u009b. Messages quote
// files and requests of strangers, whose escape sequences must not reach a terminal.
std::string printable(std::string_view text);

}  // namespace hone
