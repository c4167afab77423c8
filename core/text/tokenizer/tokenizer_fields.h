#pragma once
// Reading the members of tokenizer.json objects: each returns the member's value or the default when it is absent or
// null; the wrong kind is an Error that names where.key.
#include <string>

#include "core/base/registry.h"
#include "core/io/json.h"
#include "core/text/unicode/regex.h"

namespace hone {

bool bool_field(const Json& json, std::string_view key, bool otherwise, const std::string& where);
int64_t int_field(const Json& json, std::string_view key, int64_t otherwise, const std::string& where);
std::string string_field(const Json& json, std::string_view key, std::string_view otherwise, const std::string& where);
// The "type" of the object.
std::string type_field(const Json& json, const std::string& where);
// The registered factory of that type.
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
// The longest text that the steps of a file may make; longer is an Error. Otherwise a hundred steps could double it a
// hundred times.
void check_growth(size_t before, size_t after);
// The text with every match replaced by content.
std::string replace_all(const Regex& pattern, std::string_view text, std::string_view content);

}  // namespace hone
