#include "rewards/instructions/python_text.h"

#include "core/text/unicode/unicode.h"
#include "rewards/answers/text.h"

namespace hone {
namespace {

bool is_python_space(char32_t c) { return is_space(c) || (c >= 0x1C && c <= 0x1F); }

// A recognizer of JSON as Python's json module reads it.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : rest_(text) {}

  bool is_document() {
    skip_space();
    if (!value(0)) return false;
    skip_space();
    return rest_.empty();
  }

 private:
  static constexpr int max_depth = 900;

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n\r"), rest_.size())); }

  bool value(int depth) {
    if (depth > max_depth || rest_.empty()) return false;
    if (rest_[0] == '{') return members('}', depth);
    if (rest_[0] == '[') return members(']', depth);
    if (rest_[0] == '"') return string();
    for (const std::string_view word : {"null", "true", "false", "NaN", "Infinity", "-Infinity"})
      if (take(word)) return true;
    return number();
  }

  // An object or an array.
  bool members(char close, int depth) {
    rest_.remove_prefix(1);
    skip_space();
    if (take({&close, 1})) return true;
    while (true) {
      if (close == '}') {
        if (!string()) return false;
        skip_space();
        if (!take(":")) return false;
        skip_space();
      }
      if (!value(depth + 1)) return false;
      skip_space();
      if (take({&close, 1})) return true;
      if (!take(",")) return false;
      skip_space();
    }
  }

  bool string() {
    if (!take("\"")) return false;
    while (!rest_.empty()) {
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < ' ') return false;
      if (c == '\\' && !escape()) return false;
    }
    return false;
  }

  bool escape() {
    if (rest_.empty()) return false;
    const char c = rest_[0];
    rest_.remove_prefix(1);
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    if (rest_.substr(0, 4).find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos || rest_.size() < 4)
      return false;
    rest_.remove_prefix(4);
    return true;
  }

  bool digits() {
    const size_t count = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    rest_.remove_prefix(count);
    return count > 0;
  }

  // What follows the longest number is judged by the caller, as in "1." or "01".
  bool number() {
    take("-");
    if (!take("0") && !digits()) return false;
    if (rest_.size() > 1 && rest_[0] == '.' && is_digit(rest_[1])) {
      rest_.remove_prefix(1);
      digits();
    }
    if (!rest_.empty() && (rest_[0] == 'e' || rest_[0] == 'E')) {
      rest_.remove_prefix(1);
      if (!take("+")) take("-");
      return digits();
    }
    return true;
  }

  std::string_view rest_;
};

}  // namespace

std::string_view stripped(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!is_python_space(c.value)) break;
    text.remove_prefix(c.length);
  }
  while (!text.empty()) {
    const size_t last = code_point_before(text, text.size());
    if (!is_python_space(code_point_at(text, last).value)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string_view left_stripped(std::string_view text, std::string_view characters) {
  text.remove_prefix(std::min(text.find_first_not_of(characters), text.size()));
  return text;
}

std::string_view right_stripped(std::string_view text, std::string_view characters) {
  return text.substr(0, text.find_last_not_of(characters) + 1);
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + separator.size());
  }
}

bool is_python_json(std::string_view text) { return JsonReader(text).is_document(); }

}  // namespace hone
