#pragma once
// UTF-8 and the Unicode properties that tokenizers need (utf8proc's tables, Unicode 15). Text may contain invalid UTF-8
// anywhere. An invalid byte counts as one character U+FFFD of one byte, and no function here changes it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

struct CodePoint {
  char32_t value = 0;
  size_t length = 0;  // bytes
  bool valid = true;  // false for a stray byte
};

// Returns the character that begins at text[at]; at < text.size().
CodePoint code_point_at(std::string_view text, size_t at);
// Returns where the character before `at` begins; 0 < at <= text.size().
size_t code_point_before(std::string_view text, size_t at);
void append_utf8(std::string& out, char32_t code_point);
// Returns the number of bytes at the front of `text` that are valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);

bool is_space(char32_t c);  // White_Space
bool is_word(char32_t c);   // letters, marks, numbers, connectors: \w

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form);

}  // namespace hone
