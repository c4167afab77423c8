#include "core/text/jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace hone::jinja {

size_t char_size(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  const size_t size = byte < 0xc2 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 1;
  if (at + size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return 1;
  }
  return size;
}

static uint32_t code_point(std::string_view one) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(one[i])); };
  switch (one.size()) {
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    case 4:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
    default:
      return byte(0);
  }
}

static bool is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
         code == 0x205f || code == 0x3000;
}

size_t space_size(std::string_view text, size_t at) {
  if (at >= text.size()) return 0;
  const size_t size = char_size(text, at);
  if (size == 1 && static_cast<unsigned char>(text[at]) >= 0x80) return 0;
  return is_space(code_point(text.substr(at, size))) ? size : 0;
}

size_t char_count(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += char_size(text, at)) ++count;
  return count;
}

std::vector<std::string_view> chars(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size(); at += out.back().size()) out.push_back(text.substr(at, char_size(text, at)));
  return out;
}

// Returns how many bytes of the character at `at` may be stripped.
static size_t strippable(std::string_view text, size_t at, const std::string* among) {
  if (!among) return space_size(text, at);
  const size_t size = char_size(text, at);
  return among->find(text.substr(at, size)) != std::string::npos ? size : 0;
}

std::string_view strip_left(std::string_view text, const std::string* among) {
  while (!text.empty()) {
    const size_t size = strippable(text, 0, among);
    if (size == 0) break;
    text.remove_prefix(size);
  }
  return text;
}

std::string_view strip_right(std::string_view text, const std::string* among) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    if (start + char_size(text, start) != text.size()) start = text.size() - 1;
    const size_t size = strippable(text, start, among);
    if (size == 0) break;
    text.remove_suffix(size);
  }
  return text;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::string capitalized(std::string_view text) {
  return upper(text.substr(0, 1)) + lower(text.substr(std::min<size_t>(1, text.size())));
}

void append_utf8(std::string& out, uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6), tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12), tail(6), tail(0);
  } else {
    out += static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0);
  }
}

// std::to_chars gives the shortest digits. Python writes an exponent only outside 1e-4 .. 1e16.
std::string python_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string out(buffer, end.ptr);
  if (plain && out.find('.') == std::string::npos) out += ".0";
  return out;
}

static void append_hex(std::string& out, std::string_view prefix, uint32_t code, int digits) {
  out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[code >> shift & 15];
}

// Python escapes spaces other than ' ', format characters and controls.
static bool printable(uint32_t code) {
  if (code == ' ') return true;
  if (code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0xad || is_space(code)) return false;
  return !((code >= 0x200b && code <= 0x200f) || (code >= 0x202a && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || (code >= 0xe000 && code <= 0xf8ff) || code == 0xfeff);
}

std::string python_quoted(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::string_view one : chars(text)) {
    const uint32_t code = code_point(one);
    if (one[0] == '\n')
      out += "\\n";
    else if (one[0] == '\r')
      out += "\\r";
    else if (one[0] == '\t')
      out += "\\t";
    else if (one[0] == '\\' || one[0] == quote)
      (out += '\\') += one;
    else if (printable(code))
      out += one;
    else if (code < 0x100)
      append_hex(out, "\\x", code, 2);
    else if (code < 0x10000)
      append_hex(out, "\\u", code, 4);
    else
      append_hex(out, "\\U", code, 8);
  }
  return out += quote;
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const size_t named = std::string_view("\"\\\n\r\t\f\b").find(c);
    if (named != std::string_view::npos)
      (out += '\\') += "\"\\nrtfb"[named];
    else if (static_cast<unsigned char>(c) < 0x20)
      append_hex(out, "\\u", static_cast<unsigned char>(c), 4);
    else
      out += c;
  }
  return out += '"';
}

std::string json_escaped(std::string_view one) {
  const uint32_t code = code_point(one);
  std::string out;
  if (code < 0x10000) {
    append_hex(out, "\\u", code, 4);
    return out;
  }
  append_hex(out, "\\u", 0xd800 + ((code - 0x10000) >> 10), 4);
  append_hex(out, "\\u", 0xdc00 + (code & 0x3ff), 4);
  return out;
}

}  // namespace hone::jinja
