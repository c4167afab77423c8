#include "rewards/answers/text.h"

#include <gtest/gtest.h>

namespace hone {

constexpr size_t nowhere = std::string_view::npos;

TEST(Text, SpacesAndCase) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \n "), "");
  EXPECT_EQ(lower("AbC \xC3\x84"), "abc \xC3\x84");  // only ASCII
  EXPECT_EQ(upper("aBc \xC3\xA4"), "ABC \xC3\xA4");
  EXPECT_EQ(words_of("  two\n words\t"), (std::vector<std::string_view>{"two", "words"}));
  EXPECT_TRUE(words_of(" \n").empty());
  EXPECT_TRUE(words_of("").empty());
}

TEST(Text, TheLastMarkerWhateverItsCase) {
  EXPECT_EQ(rfind_ignoring_case("The ANSWER is the Answer", "answer"), 18U);
  EXPECT_EQ(rfind_ignoring_case("The ANSWER is the Answer", "answer", 17), 4U);
  EXPECT_EQ(rfind_ignoring_case("answe", "answer"), nowhere);
  EXPECT_EQ(rfind_ignoring_case("aaaaab", "answer"), nowhere);
  EXPECT_EQ(rfind_ignoring_case("", "x"), nowhere);
  EXPECT_EQ(end_of_last("Answer: 1. The answer is 2", {"answer:", "answer is"}), 24U);
  EXPECT_EQ(end_of_last("The answer is: answer: 2", {"answer is", "answer:"}), 22U);
  EXPECT_EQ(end_of_last("nothing", {"answer is", "answer:"}), nowhere);
}

TEST(Text, AnExcerptIsShortAndCutsNoCharacter) {
  EXPECT_EQ(excerpt(" as it is "), "as it is");
  EXPECT_EQ(excerpt(std::string(60, 'x')), std::string(60, 'x'));
  EXPECT_EQ(excerpt(std::string(61, 'x')), std::string(57, 'x') + "...");
  EXPECT_EQ(excerpt(std::string(56, 'x') + "\xC3\xA4" + std::string(9, 'x')), std::string(56, 'x') + "...");
  EXPECT_LE(excerpt(std::string(100, '\x80')).size(), 60U);
}

}  // namespace hone
