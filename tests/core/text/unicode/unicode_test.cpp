#include "core/text/unicode/unicode.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Unicode, EveryCodePointReadsBackFromUtf8) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "x";
    append_utf8(text, c);
    const CodePoint read = code_point_at(text, 1);
    ASSERT_TRUE(read.valid && read.value == c && read.length == text.size() - 1) << static_cast<uint32_t>(c);
    ASSERT_EQ(code_point_before(text, text.size()), 1u);
  }
}

TEST(Unicode, OverlongSurrogateCutAndStrayBytesAreOneByteEach) {
  for (const std::string text : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                                 "\xF4\x90\x80\x80", "\xF8\x88\x80\x80", "\x80", "\xE2\x82", "\xF0\x9F\x98", "\xFF"}) {
    const CodePoint c = code_point_at(text, 0);
    EXPECT_FALSE(c.valid) << text.size();
    EXPECT_EQ(c.length, 1u);
    EXPECT_EQ(valid_utf8_prefix("ab" + text), 2u);
    EXPECT_EQ(code_point_before(text, text.size()), text.size() - 1);
  }
}

TEST(Unicode, SpacesAreTheWhiteSpaceProperty) {
  int count = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) count += is_space(c);
  EXPECT_EQ(count, 25);
  EXPECT_TRUE(is_space(0x85) && is_space(0xA0) && is_space(0x3000) && is_space('\v'));
  EXPECT_FALSE(is_space(0x180E) || is_space(0x200B) || is_space(0xFEFF));
}

TEST(Unicode, WordCharactersAreLettersMarksNumbersAndConnectors) {
  EXPECT_TRUE(is_word('a') && is_word('_') && is_word('7') && is_word(U'é') && is_word(U'日') && is_word(0x301) &&
              is_word(0x203F));
  EXPECT_FALSE(is_word(' ') || is_word('-') || is_word(0x1F600) || is_word(0xFFFD));
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize("e\u0301\u212B", NormalForm::nfc), "é\u00C5");
  EXPECT_EQ(normalize("é", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normalize("ﬁ½", NormalForm::nfkc), "fi1\u20442");
  EXPECT_EQ(normalize("각", NormalForm::nfkd), "\u1100\u1161\u11A8");
  EXPECT_EQ(normalize("\u1100\u1161\u11A8", NormalForm::nfc), "각");
  const std::string with_zero("a\0b\u0301", 5);
  EXPECT_EQ(normalize(with_zero, NormalForm::nfc), with_zero);
}

TEST(Unicode, NormalizingKeepsInvalidBytes) {
  EXPECT_EQ(normalize("\xFF"
                      "e\u0301\xE2\x82",
                      NormalForm::nfc),
            "\xFF"
            "é\xE2\x82");
}

}  // namespace
}  // namespace hone
