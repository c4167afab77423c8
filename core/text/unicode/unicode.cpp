#include "core/text/unicode/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "core/base/check.h"

namespace hone {
namespace {

bool continues(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
}

// Every character below U+0300 is its own NFC form, and none of them composes with another.
bool plainly_nfc(std::string_view text) {
  for (const char c : text)
    if (static_cast<uint8_t>(c) >= 0xCC) return false;
  return true;
}

void append_normalized(std::string& out, std::string_view valid, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()), static_cast<utf8proc_ssize_t>(valid.size()),
                   &mapped, static_cast<utf8proc_option_t>(options));
  HONE_CHECK(length >= 0, "cannot normalize ", valid.size(), " bytes of text: ", utf8proc_errmsg(length));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  constexpr CodePoint stray{0xFFFD, 1, false};
  if (lead < 0xC2 || lead > 0xF4 || !continues(text, at + 1)) return stray;
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2, true};
  if (!continues(text, at + 2)) return stray;
  if (lead < 0xF0) {
    const char32_t c = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    return c < 0x800 || (c >= 0xD800 && c < 0xE000) ? stray : CodePoint{c, 3, true};
  }
  if (!continues(text, at + 3)) return stray;
  const char32_t c = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  return c < 0x10000 || c > 0x10FFFF ? stray : CodePoint{c, 4, true};
}

size_t code_point_before(std::string_view text, size_t at) {
  for (size_t length = 1; length <= 4 && length <= at; ++length) {
    const CodePoint c = code_point_at(text.substr(0, at), at - length);
    if (c.valid && c.length == length) return at - length;
  }
  return at - 1;
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | (c >> shift & 0x3F))); };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | c >> 12));
    tail(6), tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | c >> 18));
    tail(12), tail(6), tail(0);
  }
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!c.valid) break;
    at += c.length;
  }
  return at;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  if (c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO) || category == UTF8PROC_CATEGORY_PC;
}

std::string normalize(std::string_view text, NormalForm form) {
  constexpr int options[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                             UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
  if (form == NormalForm::nfc && plainly_nfc(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) append_normalized(out, text.substr(0, valid), options[static_cast<size_t>(form)] | UTF8PROC_STABLE);
    text.remove_prefix(valid);
    if (!text.empty()) {
      out.push_back(text.front());
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace hone
