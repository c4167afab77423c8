#pragma once
// Small questions about text that several rewards ask. ASCII only: bytes of other characters are left as they are.
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }
constexpr char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - ('a' - 'A')) : c; }

// Without spaces at either end.
std::string_view trimmed(std::string_view text);
std::string lower(std::string_view text);
std::string upper(std::string_view text);
// Where `marker` (written in lower case) last occurs whatever its case, at or before `from`; npos if nowhere.
size_t rfind_ignoring_case(std::string_view text, std::string_view marker, size_t from = std::string_view::npos);
// Where the text goes on after that of the markers (written in lower case) which ends last, whatever its case; npos if
// there is none of them.
size_t end_of_last(std::string_view text, std::initializer_list<std::string_view> markers);
// What stands between spaces.
std::vector<std::string_view> words_of(std::string_view text);
// "a few words..." for a note: at most 60 bytes.
std::string excerpt(std::string_view text);

}  // namespace hone
