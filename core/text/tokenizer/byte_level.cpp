#include "core/text/tokenizer/byte_level.h"

#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

constexpr bool spells_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}
constexpr int num_shifted = 68;  // bytes that are spelled 0x100, 0x101, ... in order

struct Tables {
  ByteAlphabet alphabet;
  std::array<uint8_t, num_shifted> shifted;
  Tables() {
    size_t place = 0;
    for (int b = 0; b < 256; ++b)
      if (spells_itself(b)) alphabet.order[place++] = static_cast<uint8_t>(b);
    int next = 0;
    for (int b = 0; b < 256; ++b) {
      if (spells_itself(b)) {
        append_utf8(alphabet.spelling[static_cast<size_t>(b)], static_cast<char32_t>(b));
      } else {
        append_utf8(alphabet.spelling[static_cast<size_t>(b)], static_cast<char32_t>(0x100 + next));
        shifted[static_cast<size_t>(next++)] = static_cast<uint8_t>(b);
        alphabet.order[place++] = static_cast<uint8_t>(b);
      }
    }
  }
};

const Tables& tables() {
  static const Tables instance;
  return instance;
}

}  // namespace

const ByteAlphabet& byte_alphabet() { return tables().alphabet; }

void append_byte_spelling(std::string& out, std::string_view bytes) {
  const auto& spelling = tables().alphabet.spelling;
  for (const char b : bytes) out += spelling[static_cast<uint8_t>(b)];
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  append_byte_spelling(out, bytes);
  return out;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string out;
  for (size_t at = 0; at < spelling.size();) {
    const CodePoint c = code_point_at(spelling, at);
    if (!c.valid) return std::nullopt;
    if (c.value < 0x100 && spells_itself(static_cast<int>(c.value)))
      out.push_back(static_cast<char>(c.value));
    else if (c.value >= 0x100 && c.value < 0x100 + num_shifted)
      out.push_back(static_cast<char>(tables().shifted[c.value - 0x100]));
    else
      return std::nullopt;
    at += c.length;
  }
  return out;
}

}  // namespace hone
