#pragma once
// JSON values. nlohmann-json parses and std::to_chars prints numbers; both stay behind this header.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/check.h"

namespace hone {

class Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // in the order written

// A JSON value. Integers that fit are int64_t, other numbers double. A double prints with the fewest digits that read
// back to the same bits; infinities and NaN print as null. Access as the wrong kind throws an Error that names `what`,
// the path of the field.
class Json {
 public:
  Json() = default;
  // Copies alternative by alternative. The variant's own copy constructor crashes in libstdc++ 12 if an alternative's
  // copy throws std::bad_alloc: it destroys an object that was never constructed.
  Json(const Json& other);
  Json& operator=(const Json& other) { return *this = Json(other); }
  Json(Json&&) noexcept = default;
  Json& operator=(Json&&) noexcept = default;
  ~Json() = default;
  Json(std::nullptr_t) {}
  Json(bool v) : value_(v) {}
  Json(int v) : value_(int64_t{v}) {}
  Json(int64_t v) : value_(v) {}
  Json(size_t v) : value_(static_cast<int64_t>(v)) {}
  Json(double v) : value_(v) {}
  Json(float v) : value_(static_cast<double>(v)) {}
  Json(const char* v) : value_(std::string(v)) {}
  Json(std::string v) : value_(std::move(v)) {}
  Json(std::string_view v) : value_(std::string(v)) {}
  Json(JsonArray v) : value_(std::move(v)) {}
  Json(JsonObject v) : value_(std::move(v)) {}
  template <class T>
  static Json array(const T& values) {
    JsonArray out;
    out.reserve(values.size());
    for (const auto& v : values) out.emplace_back(v);
    return out;
  }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<JsonArray>(value_); }
  bool is_object() const { return std::holds_alternative<JsonObject>(value_); }
  std::string_view kind_name() const;

  bool as_bool(std::string_view what = "value") const;
  int64_t as_int(std::string_view what = "value") const;  // a double with an integral value counts
  double as_double(std::string_view what = "value") const;
  const std::string& as_string(std::string_view what = "value") const;
  const JsonArray& as_array(std::string_view what = "value") const;
  const JsonObject& as_object(std::string_view what = "value") const;
  JsonArray& array_ref() { return std::get<JsonArray>(value_); }
  JsonObject& object_ref() { return std::get<JsonObject>(value_); }

  // Members of an object. find() returns nullptr for an absent member and the last of several with one name; at()
  // throws Error. set() replaces or appends; it turns null into an object.
  const Json* find(std::string_view key) const;
  const Json& at(std::string_view key, std::string_view what = "object") const;
  void set(std::string_view key, Json value);

  // One line if indent is negative. Invalid UTF-8 becomes U+FFFD.
  std::string dump(int indent = -1) const;
  bool operator==(const Json&) const = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, JsonArray, JsonObject> value_;
};

// Errors name source, line, column and what was expected. Nesting deeper than 256 is an Error. `source`: the name of
// the text in messages. first_line: the number of its first line in messages.
Json parse_json(std::string_view text, std::string_view source, int64_t first_line = 1);

// The fewest digits that read back to the same bits; "nan", "inf", "-inf".
std::string number_text(double value);

}  // namespace hone
