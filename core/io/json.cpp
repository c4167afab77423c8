#include "core/io/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <new>
#include <nlohmann/json.hpp>

#include "core/io/utf8.h"

namespace hone {
namespace {

constexpr size_t kMaxDepth = 256;

std::string place(std::string_view text, size_t position, std::string_view source, int64_t first_line) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + first_line;
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return concat(source, ":", line, ":", before.size() - line_start + 1);
}

// Builds a Json from nlohmann's events; the stack holds the arrays and objects that are still open.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, std::string_view source, int64_t first_line)
      : text_(text), source_(source), first_line_(first_line) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(int64_t v) override { return put(v); }
  bool number_unsigned(uint64_t v) override {
    return v <= static_cast<uint64_t>(INT64_MAX) ? put(static_cast<int64_t>(v)) : put(static_cast<double>(v));
  }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(JsonObject{}); }
  bool start_array(size_t) override { return open(JsonArray{}); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& v) override {
    open_.back().object_ref().emplace_back(std::move(v), nullptr);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) override {
    std::string_view what = error.what();
    for (const std::string_view prefix : {"] ", ": "})
      if (const size_t at = what.find(prefix); at != std::string_view::npos) what.remove_prefix(at + prefix.size());
    fail(place(text_, position > 0 ? position - 1 : 0, source_, first_line_), ": ", what);
  }

  Json take() { return std::move(root_); }

 private:
  bool put(Json&& v) {
    if (open_.empty())
      root_ = std::move(v);
    else if (open_.back().is_array())
      open_.back().array_ref().push_back(std::move(v));
    else
      open_.back().object_ref().back().second = std::move(v);
    return true;
  }
  bool open(Json&& v) {
    HONE_CHECK(open_.size() < kMaxDepth, source_, ":", first_line_, ": JSON nested more than ", kMaxDepth, " deep");
    open_.push_back(std::move(v));
    return true;
  }
  bool close() {
    Json done = std::move(open_.back());
    open_.pop_back();
    return put(std::move(done));
  }

  std::string_view text_, source_;
  int64_t first_line_;
  std::vector<Json> open_;
  Json root_;
};

void print_string(std::string& out, std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    const size_t length = utf8_length(text);
    if (length == 0)
      out += "\xEF\xBF\xBD";
    else if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (static_cast<uint8_t>(c) < 0x20)
      out += "\\u00", out += hex[static_cast<uint8_t>(c) >> 4], out += hex[c & 15];
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  out += '"';
}

// Prints a double with a decimal point, so that -0.0 and 1.0 read back as doubles.
void print_double(std::string& out, double value) {
  if (!std::isfinite(value)) return void(out += "null");
  const std::string text = number_text(value);
  out += text;
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

void print(std::string& out, const Json& value, int indent, int depth) {
  const auto line = [&](int levels) {
    if (indent >= 0) out += '\n', out.append(static_cast<size_t>(indent) * static_cast<size_t>(levels), ' ');
  };
  const auto separate = [&](bool first) {
    if (!first) out += indent >= 0 ? "," : ", ";
    line(depth + 1);
  };
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_number()) {
    print_double(out, value.as_double());
  } else if (value.is_string()) {
    print_string(out, value.as_string());
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& item : value.as_array()) {
      separate(std::exchange(first, false));
      print(out, item, indent, depth + 1);
    }
    if (!first) line(depth);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.as_object()) {
      separate(std::exchange(first, false));
      print_string(out, key);
      out += ": ";
      print(out, item, indent, depth + 1);
    }
    if (!first) line(depth);
    out += '}';
  }
}

}  // namespace

Json::Json(const Json& other) {
  std::visit(
      [this](const auto& held) {
        auto copy = held;
        value_.emplace<decltype(copy)>(std::move(copy));
      },
      other.value_);
}

std::string_view Json::kind_name() const {
  constexpr std::string_view names[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "an array",  "an object"};
  return names[value_.index()];
}

bool Json::as_bool(std::string_view what) const {
  HONE_CHECK(is_bool(), what, ": expected a boolean, got ", kind_name());
  return std::get<bool>(value_);
}

int64_t Json::as_int(std::string_view what) const {
  if (const double* number = std::get_if<double>(&value_)) {
    HONE_CHECK(*number == std::trunc(*number) && std::abs(*number) < 0x1p63, what, ": expected an integer, got ",
               number_text(*number));
    return static_cast<int64_t>(*number);
  }
  HONE_CHECK(is_int(), what, ": expected an integer, got ", kind_name());
  return std::get<int64_t>(value_);
}

double Json::as_double(std::string_view what) const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  HONE_CHECK(is_number(), what, ": expected a number, got ", kind_name());
  return std::get<double>(value_);
}

const std::string& Json::as_string(std::string_view what) const {
  HONE_CHECK(is_string(), what, ": expected a string, got ", kind_name());
  return std::get<std::string>(value_);
}

const JsonArray& Json::as_array(std::string_view what) const {
  HONE_CHECK(is_array(), what, ": expected an array, got ", kind_name());
  return std::get<JsonArray>(value_);
}

const JsonObject& Json::as_object(std::string_view what) const {
  HONE_CHECK(is_object(), what, ": expected an object, got ", kind_name());
  return std::get<JsonObject>(value_);
}

const Json* Json::find(std::string_view key) const {
  const JsonObject* object = std::get_if<JsonObject>(&value_);
  if (!object) return nullptr;
  const auto found =
      std::find_if(object->rbegin(), object->rend(), [&](const auto& member) { return member.first == key; });
  return found == object->rend() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view key, std::string_view what) const {
  HONE_CHECK(is_object(), what, ": expected an object, got ", kind_name());
  const Json* found = find(key);
  HONE_CHECK(found, what, ": member '", key, "' is missing");
  return *found;
}

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = JsonObject{};
  HONE_CHECK(is_object(), "set '", key, "': expected an object, got ", kind_name());
  for (auto& [name, member] : object_ref())
    if (name == key) return void(member = std::move(value));
  object_ref().emplace_back(std::string(key), std::move(value));
}

std::string Json::dump(int indent) const {
  std::string out;
  print(out, *this, indent, 0);
  return out;
}

Json parse_json(std::string_view text, std::string_view source, int64_t first_line) {
  Builder builder(text, source, first_line);
  try {
    HONE_CHECK(nlohmann::json::sax_parse(text.begin(), text.end(), &builder), source, ": not JSON");
  } catch (const std::bad_alloc&) {
    fail(source, ": there is not enough memory for the values of its ", text.size(), " bytes");
  }
  return builder.take();
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace hone
