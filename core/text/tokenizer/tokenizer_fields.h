#pragma once
// Reads members of tokenizer.json objects. Each function returns the member, or the default if it is absent or null. A
// member of the wrong type is an Error that names where.key.
#include <string>

#include "core/base/registry.h"
#include "core/io/json.h"
#include "core/text/unicode/regex.h"

namespace hone {

bool bool_field(const Json& json, std::string_view key, bool otherwise, const std::string& where);
int64_t int_field(const Json& json, std::string_view key, int64_t otherwise, const std::string& where);
std::string string_field(const Json& json, std::string_view key, std::string_view otherwise, const std::string& where);
// The object's "type" member.
std::string type_field(const Json& json, const std::string& where);
// The registered entry of the object's type.
template <class T>
const T& at_type(const Registry<T>& registry, const Json& json, const std::string& where) {
  const std::string type = type_field(json, where);
  try {
    return registry.at(type);
  } catch (const Error& error) {
    fail(where, ".type: ", error.what());
  }
}
// "pattern": {"String": ...} or {"Regex": ...}.
Regex pattern_field(const Json& json, const std::string& where);
// Throws Error if a step of a tokenizer file makes a text too large: a hundred steps could each double it.
void check_growth(size_t before, size_t after);
// Replaces every match of the pattern by `content`.
std::string replace_all(const Regex& pattern, std::string_view text, std::string_view content);

}  // namespace hone
