#include "core/text/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

// Returns the input with each token as <id>.
std::string found(const AddedTokenMatcher& matcher, std::string_view text, bool special = true) {
  std::string out;
  matcher.each(
      text, special, [&](size_t begin, size_t end) { out += "[" + std::string(text.substr(begin, end - begin)) + "]"; },
      [&](int32_t id) { out += "<" + std::to_string(id) + ">"; });
  return out;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const AddedTokenMatcher matcher({{.id = 1, .content = "<e>"},
                                   {.id = 2, .content = "<e><e>"},
                                   {.id = 3, .content = "e"},
                                   {.id = 4, .content = "<"},
                                   {.id = 5, .content = ""}});
  EXPECT_EQ(found(matcher, "a<e><e><e>b"), "[a]<2><1>[b]");
  EXPECT_EQ(found(matcher, "<<e"), "<4><4><3>");
  EXPECT_EQ(found(matcher, ""), "");
  EXPECT_EQ(found(AddedTokenMatcher(), "abc"), "[abc]");
}

TEST(AddedTokens, SpecialOnesAreTextOnRequest) {
  const AddedTokenMatcher matcher({{.id = 1, .content = "<s>", .special = true}, {.id = 2, .content = "<tool>"}});
  EXPECT_EQ(found(matcher, "<s><tool>x<s>", false), "[<s>]<2>[x<s>]");
}

TEST(AddedTokens, StripsTakeWhiteSpaceAlong) {
  const AddedTokenMatcher matcher(
      {{.id = 1, .content = "<l>", .lstrip = true}, {.id = 2, .content = "<r>", .rstrip = true}});
  EXPECT_EQ(found(matcher, "a \u3000<l> b"), "[a]<1>[ b]");
  EXPECT_EQ(found(matcher, "a <r> \n b"), "[a ]<2>[b]");
  EXPECT_EQ(found(matcher, "<r>  <l>"), "<2><1>");
}

TEST(AddedTokens, SingleWordsStandAlone) {
  const AddedTokenMatcher matcher({{.id = 1, .content = "cat", .single_word = true}});
  EXPECT_EQ(found(matcher, "cat concat cats écat cat-cat 日cat"), "<1>[ concat cats écat ]<1>[-]<1>[ 日cat]");
}

}  // namespace
}  // namespace hone
