#pragma once
#include <string_view>

namespace hone {

// The text of rewards/plugins/python_adapter.py, which travels inside the program.
std::string_view python_adapter();

}  // namespace hone
