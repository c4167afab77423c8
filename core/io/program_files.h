#pragma once
// Files that come with the program: configs/ of the source tree of a build, or of an installed package.
#include <filesystem>
#include <string>
#include <vector>

namespace hone {

// Folders that may hold them, in the order of a search: the working folder (""), then each folder above the program and
// its share/hone.
std::vector<std::filesystem::path> program_folders();

// `path` if it is absolute or exists; else the file of this relative path that came with the program; else `path`.
std::string find_program_file(const std::string& path);

}  // namespace hone
