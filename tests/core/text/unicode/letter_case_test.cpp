// Case as Python's str methods define it.
#include "core/text/unicode/letter_case.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(LetterCase, Lower) {
  EXPECT_EQ(lower_case("HELLO Wörld ÄÖÜ"), "hello wörld äöü");
  EXPECT_EQ(lower_case("ΟΔΥΣΣΕΥΣ, ΣΑΣ"), "οδυσσευς, σας");
  EXPECT_EQ(lower_case("Σ"), "σ");
  EXPECT_EQ(lower_case("İ"), "i̇");
  EXPECT_EQ(lower_case("A\xff\xc3"), "a\xff\xc3");
}

TEST(LetterCase, AllUpperAndAllLower) {
  for (const char* text : {"A", "HELLO, 1ST!", "ÄÖÜ", "Ⅷ"}) EXPECT_TRUE(is_all_upper(text)) << text;
  for (const char* text : {"", "123", "Hello", "ǅ", "ABCª", "नमस्ते"}) EXPECT_FALSE(is_all_upper(text)) << text;
  for (const char* text : {"a", "hello, 1st!", "äöü", "ª"}) EXPECT_TRUE(is_all_lower(text)) << text;
  for (const char* text : {"", "123", "Hello", "ǆǅ"}) EXPECT_FALSE(is_all_lower(text)) << text;
}

TEST(LetterCase, MarksAreNeitherLettersNorNumbers) {
  EXPECT_TRUE(is_alphanumeric(U'a'));
  EXPECT_TRUE(is_alphanumeric(U'²'));
  EXPECT_TRUE(is_alphanumeric(U'न'));
  EXPECT_FALSE(is_alphanumeric(0x93E));  // Devanagari vowel sign aa
  EXPECT_FALSE(is_alphanumeric(U'_'));
}

}  // namespace
}  // namespace hone
