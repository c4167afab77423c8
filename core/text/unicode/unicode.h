#pragma once
// UTF-8 and what the tokenizers need of the Unicode tables (utf8proc's, Unicode 15). Text is bytes that may hold
// invalid UTF-8 anywhere; an invalid byte counts as one character U+FFFD that is one byte long, and no function here
// alters it.
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

// The character that begins at text[at]; at < text.size().
CodePoint code_point_at(std::string_view text, size_t at);
// Where the character that ends just before `at` begins; 0 < at <= text.size().
size_t code_point_before(std::string_view text, size_t at);
void append_utf8(std::string& out, char32_t code_point);
// The bytes at the front of `text` that are valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);

bool is_space(char32_t c);  // White_Space
bool is_word(char32_t c);   // letters, marks, numbers, connectors: \w

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form);

}  // namespace hone
