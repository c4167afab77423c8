#pragma once
// Text functions that several rewards use. They handle ASCII; bytes of other characters are left unchanged.
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

// Returns the text without white space at either end.
std::string_view trimmed(std::string_view text);
std::string lower(std::string_view text);
std::string upper(std::string_view text);
// Returns where `marker` (lower case) last occurs at or before `from`, ignoring case; npos if it does not.
size_t rfind_ignoring_case(std::string_view text, std::string_view marker, size_t from = std::string_view::npos);
// Returns the end of the marker occurrence that ends last, ignoring case; npos if no marker occurs. Markers are lower
// case.
size_t end_of_last(std::string_view text, std::initializer_list<std::string_view> markers);
// Returns the words between white space.
std::vector<std::string_view> words_of(std::string_view text);
// Returns at most 60 bytes of the text for a note, with "..." if it is cut.
std::string excerpt(std::string_view text);

}  // namespace hone
