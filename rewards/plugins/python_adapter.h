#pragma once
// The Python adapter of rewards with kind = "python", embedded in the program.
#include <string_view>

namespace hone {

// Returns the text of rewards/plugins/python_adapter.py.
std::string_view python_adapter();

}  // namespace hone
