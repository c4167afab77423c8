#pragma once
// Parses a template's source into a tree. Errors name the line and the expected token.
#include <string_view>

#include "core/text/jinja/ast.h"

namespace hone::jinja {

void parse(std::string_view source, Tree& tree);

}  // namespace hone::jinja
