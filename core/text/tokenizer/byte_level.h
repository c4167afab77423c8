#pragma once
// The byte alphabet of GPT-2's vocabulary: each byte is spelled as one printable character (a space as U+0120), so that
// a vocabulary is text without spaces.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

struct ByteAlphabet {
  std::array<std::string, 256> spelling;  // UTF-8, one or two bytes
  std::array<uint8_t, 256> order;  // the bytes by code point of their spelling: the order of ids in GPT-2's vocabulary
};
const ByteAlphabet& byte_alphabet();

// Converts bytes to characters and back. unspell_bytes() returns nullopt if a character spells no byte.
void append_byte_spelling(std::string& out, std::string_view bytes);
std::string spell_bytes(std::string_view bytes);
std::optional<std::string> unspell_bytes(std::string_view spelling);

// GPT-2's pre-tokenization pattern.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace hone
