#pragma once
// Upper and lower case of Unicode text, and its letters and numbers, as Python's str.lower(), str.isupper(),
// str.islower() and str.isalnum() define them.
#include <string>
#include <string_view>

namespace hone {

bool is_upper(char32_t c);         // Uppercase
bool is_lower(char32_t c);         // Lowercase
bool is_alphanumeric(char32_t c);  // letters and numbers; not marks

// The text in lower case. A capital sigma at the end of a word becomes a final sigma. Invalid bytes stay.
std::string lower_case(std::string_view text);

// True if the text has letters of this case, and none of the other or in title case.
bool is_all_upper(std::string_view text);
bool is_all_lower(std::string_view text);

}  // namespace hone
