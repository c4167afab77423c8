#include "core/text/unicode/regex.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/base/check.h"

namespace hone {
namespace {

std::vector<std::string> matches(const Regex& regex, std::string_view text) {
  std::vector<std::string> out;
  regex.each(text, [&](size_t begin, size_t end) { out.emplace_back(text.substr(begin, end - begin)); });
  return out;
}
std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  return matches(Regex(pattern, "test"), text);
}
using Strings = std::vector<std::string>;

TEST(Regex, FindsEveryMatchInOrder) {
  EXPECT_EQ(matches("\\p{L}+", "ab é1日本 x"), (Strings{"ab", "é", "日本", "x"}));
  EXPECT_EQ(matches("(?i:'s|'t)", "it'S don't 'ſ"), (Strings{"'S", "'t", "'ſ"}));
  EXPECT_EQ(matches("\\p{N}{1,3}", "12345"), (Strings{"123", "45"}));
  EXPECT_EQ(matches("^a", "a\na"), (Strings{"a", "a"}));
}

TEST(Regex, EmptyMatchesAdvance) { EXPECT_EQ(matches("b*", "aéb"), (Strings{"", "", "b", ""})); }

TEST(Regex, SpacesAreWhiteSpaceInAndOutOfClasses) {
  EXPECT_EQ(matches("\\s+", "a\u180Eb\u0085\u3000c\u2028"), (Strings{"\u0085\u3000", "\u2028"}));
  EXPECT_EQ(matches("\\S+", "a\u180E b"), (Strings{"a\u180E", "b"}));
  EXPECT_EQ(matches("[^\\s\\p{L}]+", "a\u180E! \u0085b"), (Strings{"\u180E!"}));
}

TEST(Regex, InvalidBytesCountAsOneCharacterEach) {
  EXPECT_EQ(matches("\\p{L}+",
                    "ab\xFF"
                    "cd\xE2\x82"),
            (Strings{"ab", "cd"}));
  EXPECT_EQ(matches("[^\\p{L}]", "a\xFF\xFE"), (Strings{"\xFF", "\xFE"}));
}

TEST(Regex, LiteralsMatchTheirBytes) {
  EXPECT_EQ(matches(Regex::literal("a.", "test"), "aba.a.xa"), (Strings{"a.", "a."}));
  EXPECT_THROW(Regex::literal("", "test"), Error);
}

TEST(Regex, BadPatternsNameTheirSource) {
  for (const char* pattern : {"(", "[a", "a{2,1}", "\\h", "[a&&b]", "[a[b]]", "\xFF", "(?<x"}) {
    try {
      Regex regex(pattern, "file.json: pattern");
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("file.json: pattern"), std::string::npos) << error.what();
    }
  }
}

TEST(Regex, CatastrophicPatternsAreErrors) {
  const Regex regex("(?:a+)+$|(?:a|aa)+b", "test");
  EXPECT_THROW(regex.matches_within(std::string(5000, 'a') + "c"), Error);
}

TEST(Regex, ACallbackMayMatchToo) {
  const Regex words("\\w+", "test"), letters("\\w", "test");
  Strings out;
  const std::string text = "ab cd";
  words.each(text, [&](size_t begin, size_t end) {
    for (std::string& letter : matches(letters, std::string_view(text).substr(begin, end - begin)))
      out.push_back(std::move(letter));
  });
  EXPECT_EQ(out, (Strings{"a", "b", "c", "d"}));
}

}  // namespace
}  // namespace hone
