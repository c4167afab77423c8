#pragma once
#include <string>

namespace hone {

// Warns that `old_name` at `where` (a file and line) is now called `new_name`. A process warns once for each pair of
// names. Any thread may call.
void warn_renamed(const std::string& where, const std::string& old_name, const std::string& new_name);

}  // namespace hone
