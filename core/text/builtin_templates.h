#pragma once
// The chat templates that hone has built in, by name. Each marks the assistant's text, so that training finds its turns
// without searching for them.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"

namespace hone {

struct BuiltinTemplate {
  std::string_view name, text;
  std::vector<std::string> needs;  // tokens that the vocabulary must have
};
// In the order of names.
std::span<const BuiltinTemplate> builtin_templates();
// nullptr if there is none of this name.
const BuiltinTemplate* find_builtin_template(std::string_view name);
// Throws Error if the vocabulary lacks a token that the template needs.
Tokenizer with_builtin_template(const Tokenizer& tokenizer, const BuiltinTemplate& builtin);

}  // namespace hone
