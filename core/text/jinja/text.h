#pragma once
// Strings of templates: UTF-8 whose unit is the code point, and Python's spellings of numbers and quoted strings. Only
// ASCII letters have case mapping. A byte that is not UTF-8 counts as one character.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone::jinja {

// Returns the bytes of the character at `at`; at < text.size().
size_t char_size(std::string_view text, size_t at);
// Returns the bytes of the white space character at `at`, or 0 if there is another character or the end.
size_t space_size(std::string_view text, size_t at);
size_t char_count(std::string_view text);
// Returns the characters in order, as views of text.
std::vector<std::string_view> chars(std::string_view text);

// Removes leading (trailing) characters that are in `among`; white space if `among` is null.
std::string_view strip_left(std::string_view text, const std::string* among = nullptr);
std::string_view strip_right(std::string_view text, const std::string* among = nullptr);

bool is_letter(char c);
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);

void append_utf8(std::string& out, uint32_t code);
std::string python_number(double value);           // 1.0, 0.1, 1e+16, nan, inf
std::string python_quoted(std::string_view text);  // 'it', "it's", with escapes
std::string json_quoted(std::string_view text);    // "it", control characters escaped
std::string json_escaped(std::string_view one);    // one character as \uXXXX (a pair beyond 0xffff)

}  // namespace hone::jinja
