#pragma once
// Functions of Python's str and json that IFEval's verdicts depend on.
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Without Unicode white space at both ends.
std::string_view stripped(std::string_view text);
// Without any of these ASCII characters at the beginning, and at the end.
std::string_view left_stripped(std::string_view text, std::string_view characters);
std::string_view right_stripped(std::string_view text, std::string_view characters);
// The parts between occurrences of the separator.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator);
// True if json.loads accepts the text: JSON, and also NaN, Infinity and -Infinity. Nesting deeper than 900 is refused.
bool is_python_json(std::string_view text);

}  // namespace hone
