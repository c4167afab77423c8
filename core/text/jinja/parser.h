#pragma once
// Source to tree. Errors say the line and what was expected there.
#include <string_view>

#include "core/text/jinja/ast.h"

namespace hone::jinja {

void parse(std::string_view source, Tree& tree);

}  // namespace hone::jinja
