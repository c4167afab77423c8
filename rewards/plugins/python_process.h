#pragma once
// The text that the Python processes of rewards, environments and tools share, embedded in the program.
#include <string>
#include <string_view>

namespace hone {

// Returns the text of rewards/plugins/python_process.py.
std::string_view python_process();

// A program for `python3 -c`: the shared text, then that of a process.
inline std::string python_program(std::string_view process) { return std::string(python_process()).append(process); }

}  // namespace hone
