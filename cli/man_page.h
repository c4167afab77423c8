#pragma once
// Man pages (man(7)) from the texts that --help prints.
#include <string>
#include <utility>
#include <vector>

namespace hone {

// File names (hone.1, hone-run.1, ...) with their texts: one page for the program and one for each command.
std::vector<std::pair<std::string, std::string>> man_pages();

}  // namespace hone
