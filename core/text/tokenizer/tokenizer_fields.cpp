#include "core/text/tokenizer/tokenizer_fields.h"

namespace hone {
namespace {

const Json* present(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value && !value->is_null() ? value : nullptr;
}

std::string path(const std::string& where, std::string_view key) { return where + "." + std::string(key); }

}  // namespace

bool bool_field(const Json& json, std::string_view key, bool otherwise, const std::string& where) {
  const Json* value = present(json, key);
  return value ? value->as_bool(path(where, key)) : otherwise;
}

int64_t int_field(const Json& json, std::string_view key, int64_t otherwise, const std::string& where) {
  const Json* value = present(json, key);
  return value ? value->as_int(path(where, key)) : otherwise;
}

std::string string_field(const Json& json, std::string_view key, std::string_view otherwise, const std::string& where) {
  const Json* value = present(json, key);
  return value ? value->as_string(path(where, key)) : std::string(otherwise);
}

std::string type_field(const Json& json, const std::string& where) {
  json.as_object(where);
  return json.at("type", where).as_string(path(where, "type"));
}

Regex pattern_field(const Json& json, const std::string& where) {
  const std::string place = path(where, "pattern");
  const Json& pattern = json.at("pattern", where);
  if (pattern.is_string()) return Regex::literal(pattern.as_string(), place);
  pattern.as_object(place);
  if (const Json* text = pattern.find("String")) return Regex::literal(text->as_string(place + ".String"), place);
  return Regex(pattern.at("Regex", place).as_string(place + ".Regex"), place);
}

void check_growth(size_t before, size_t after) {
  HONE_CHECK(after <= before * 64 + 65536, "the tokenizer makes ", after, " bytes or more of a text of ", before,
             "; at most 64 times as many are allowed");
}

std::string replace_all(const Regex& pattern, std::string_view text, std::string_view content) {
  std::string out;
  size_t copied = 0;
  pattern.each(text, [&](size_t begin, size_t end) {
    out.append(text.substr(copied, begin - copied)).append(content);
    copied = end;
    check_growth(text.size(), out.size());
  });
  return out.append(text.substr(copied));
}

}  // namespace hone
