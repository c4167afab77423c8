#include "core/text/tokenizer/byte_level.h"

#include <gtest/gtest.h>

#include <set>

namespace hone {
namespace {

TEST(ByteLevel, EveryByteHasItsOwnSpellingAndComesBack) {
  std::set<std::string> spellings;
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    spellings.insert(spell_bytes(byte));
    EXPECT_EQ(unspell_bytes(spell_bytes(byte)), byte);
  }
  EXPECT_EQ(spellings.size(), 256u);
  EXPECT_EQ(spell_bytes(" a\n\x7F\xA0\xAD\xFF"), "ĠaĊġłŃÿ");
}

TEST(ByteLevel, OrderIsByCodePointOfTheSpelling) {
  const auto& alphabet = byte_alphabet();
  EXPECT_EQ(alphabet.order[0], '!');
  EXPECT_EQ(alphabet.order[188], 0);
  EXPECT_EQ(alphabet.order[255], 0xAD);
}

TEST(ByteLevel, OtherCharactersSpellNothing) {
  EXPECT_EQ(unspell_bytes("a b"), std::nullopt);
  EXPECT_EQ(unspell_bytes("｜"), std::nullopt);
  EXPECT_EQ(unspell_bytes("\xFF"), std::nullopt);
  EXPECT_EQ(unspell_bytes("ń"), std::nullopt);
}

}  // namespace
}  // namespace hone
