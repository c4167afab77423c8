#include "core/text/jinja/lexer.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "core/base/check.h"
#include "core/text/jinja/text.h"

namespace hone::jinja {
namespace {

using Type = Token::Type;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return is_letter(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80; }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    add(Type::end, "");
    return std::move(tokens_);
  }

 private:
  template <class... Words>
  [[noreturn]] void error(const Words&... words) const {
    fail("template line ", line_, ": ", words...);
  }
  bool sees(std::string_view word) const { return std::string_view(source_).substr(at_, word.size()) == word; }
  void add(Type type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }
  void advance(size_t bytes) {
    for (const size_t end = at_ + bytes; at_ < end; ++at_) line_ += source_[at_] == '\n';
  }
  void skip_space() {
    while (const size_t size = space_size(source_, at_)) advance(size);
  }

  // Reads the text up to the next tag, and the tag.
  void text() {
    size_t tag = at_;
    do {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) return plain(source_.size(), 0, false);
    } while (std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos && ++tag);
    const char kind = source_[tag + 1];
    const char sign =
        tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : 0;
    plain(tag, sign, kind != '{');
    advance(sign ? 3 : 2);
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '{' ? Type::output_begin : Type::block_begin, "");
    inside(kind == '{' ? "}}" : "%}");
  }

  // Adds the text up to `end`, which a tag with `sign` (or the end of the source) follows.
  void plain(size_t end, char sign, bool block) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = strip_right(text);
    } else if (block && sign != '+') {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || at_line_start_) && strip_left(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(Type::text, std::string(text));
    advance(end - at_);
  }

  // Consumes a tag's end and the white space that it strips. Returns false if there is no tag end here.
  bool tag_end(std::string_view end) {
    const size_t start = at_;
    const bool signs = end != "}}";
    if (at_ < source_.size() && source_[at_] == '-' && std::string_view(source_).substr(at_ + 1, 2) == end) {
      advance(3);
      skip_space();
    } else if (signs && at_ < source_.size() && source_[at_] == '+' &&
               std::string_view(source_).substr(at_ + 1, 2) == end) {
      advance(3);
    } else if (sees(end)) {
      advance(2);
      if (signs && sees("\n")) advance(1);
    } else {
      return false;
    }
    at_line_start_ = at_ > start && source_[at_ - 1] == '\n';
    return true;
  }

  void comment() {
    while (at_ < source_.size()) {
      if (tag_end("#}")) return;
      advance(1);
    }
    error("a comment {# has no end #}");
  }

  // Reads {% raw %} ... {% endraw %} if the opened block is one.
  bool raw() {
    const size_t start = at_;
    const int line = line_;
    skip_space();
    if (sees("raw")) {
      advance(3);
      skip_space();
      const bool dash = sees("-%}");
      if (dash || sees("%}")) {
        advance(dash ? 3 : 2);
        if (dash) skip_space();
        at_line_start_ = source_[at_ - 1] == '\n';
        raw_text();
        return true;
      }
    }
    at_ = start;
    line_ = line;
    return false;
  }

  void raw_text() {
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      size_t after = tag + 2;
      const char sign =
          after < source_.size() && (source_[after] == '-' || source_[after] == '+') ? source_[after++] : 0;
      while (const size_t size = space_size(source_, after)) after += size;
      if (std::string_view(source_).substr(after, 6) != "endraw") continue;
      plain(tag, sign, true);
      advance(after + 6 - at_);
      skip_space();
      if (!tag_end("%}")) error("expected %} after endraw");
      return;
    }
    error("{% raw %} has no {% endraw %}");
  }

  void inside(std::string_view end) {
    std::string open;  // open brackets
    while (true) {
      skip_space();
      if (at_ >= source_.size()) error("a tag has no end ", end);
      if (open.empty()) {
        const int line = line_;
        if (tag_end(end)) {
          add(end == "}}" ? Type::output_end : Type::block_end, "");
          tokens_.back().line = line;
          return;
        }
      }
      const char c = source_[at_];
      if (c == '\'' || c == '"')
        string(c);
      else if (is_digit(c))
        number();
      else if (starts_name(c))
        name();
      else
        symbol(open);
    }
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && (starts_name(source_[end]) || is_digit(source_[end]))) ++end;
    add(Type::name, source_.substr(at_, end - at_));
    advance(end - at_);
  }

  void number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::string digits;
    size_t at = at_;
    const auto take = [&](auto is_part) {
      while (at < source_.size() && (is_part(source_[at]) || source_[at] == '_')) {
        if (source_[at] != '_') digits += source_[at];
        ++at;
      }
    };
    const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    Type type = Type::integer;
    if (source_[at] == '0' && at + 1 < source_.size() &&
        std::string_view("xXoObB").find(source_[at + 1]) != std::string_view::npos) {
      digits = source_.substr(at, 2);
      at += 2;
      take([](char c) { return is_digit(c) || is_letter(c); });
    } else {
      take(is_digit);
      if (!after_dot && at < source_.size() && source_[at] == '.' && digit_at(at + 1)) {
        type = Type::real;
        digits += '.';
        ++at;
        take(is_digit);
      }
      const size_t sign = at + 1 < source_.size() && (source_[at + 1] == '-' || source_[at + 1] == '+') ? 1 : 0;
      if (!after_dot && at < source_.size() && (source_[at] == 'e' || source_[at] == 'E') && digit_at(at + 1 + sign)) {
        type = Type::real;
        digits += 'e';
        if (sign) digits += source_[at + 1];
        at += 1 + sign;
        take(is_digit);
      }
    }
    add(type, digits);
    advance(at - at_);
  }

  void symbol(std::string& open) {
    static constexpr std::array<std::string_view, 6> pairs = {"//", "**", "==", "!=", "<=", ">="};
    for (const std::string_view pair : pairs) {
      if (sees(pair)) return add(Type::symbol, std::string(pair)), advance(2);
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      error("unexpected character '", c, "'");
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char opener = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != opener) error("unexpected '", c, "'");
      open.pop_back();
    }
    add(Type::symbol, std::string(1, c));
    advance(1);
  }

  void string(char quote) {
    const int line = line_;
    std::string out;
    advance(1);
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\' && at_ + 1 < source_.size()) {
        escape(out);
      } else {
        out += source_[at_];
        advance(1);
      }
    }
    if (at_ >= source_.size()) fail("template line ", line, ": a string has no closing ", quote);
    advance(1);
    add(Type::string, std::move(out));
    tokens_.back().line = line;
  }

  // Reads a backslash sequence. A sequence unknown to Python stays as written.
  void escape(std::string& out) {
    const char c = source_[at_ + 1];
    const size_t named = std::string_view("nrtabfv\\'\"").find(c);
    if (named != std::string_view::npos) {
      out += "\n\r\t\a\b\f\v\\'\""[named];
      return advance(2);
    }
    if (c == '\n') return advance(2);
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) return code(out, at_ + 2, digits, 16);
    if (c >= '0' && c <= '7') {
      size_t count = 1;
      while (count < 3 && at_ + 1 + count < source_.size() && source_[at_ + 1 + count] >= '0' &&
             source_[at_ + 1 + count] <= '7')
        ++count;
      return code(out, at_ + 1, count, 8);
    }
    out += '\\';
    advance(1);
  }

  void code(std::string& out, size_t from, size_t digits, int base) {
    uint32_t value = 0;
    const char* first = source_.data() + from;
    const bool enough = from + digits <= source_.size();
    if (!enough || std::from_chars(first, first + digits, value, base).ptr != first + digits || value > 0x10ffff ||
        (value >= 0xd800 && value < 0xe000)) {
      error("a string's \\", source_[at_ + 1], " escape needs ", digits, " digits of a character");
    }
    append_utf8(out, value);
    advance(from + digits - at_);
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return Lexer(std::move(text)).run();
}

}  // namespace hone::jinja
