#include "core/text/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/text/tokenizer/byte_level.h"

namespace hone {
namespace {

using Strings = std::vector<std::string>;

Strings words(const std::string& json, std::string_view text, TextStart start = TextStart::text) {
  Strings out;
  make_pre_tokenizer(parse_json(json, "test"), "test")->split(text, start, [&](std::string_view word, TextStart) {
    out.emplace_back(word);
  });
  return out;
}
Strings split(const std::string& behavior, std::string_view text, bool invert = false) {
  return words(R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behavior + R"(", "invert": )" +
                   (invert ? "true}" : "false}"),
               text);
}

TEST(PreTokenizer, SplitBehaviors) {
  const std::string_view text = "the-final--countdown-";
  EXPECT_EQ(split("Removed", text), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split("Isolated", text), (Strings{"the", "-", "final", "-", "-", "countdown", "-"}));
  EXPECT_EQ(split("Contiguous", text), (Strings{"the", "-", "final", "--", "countdown", "-"}));
  EXPECT_EQ(split("MergedWithPrevious", text), (Strings{"the-", "final-", "-", "countdown-"}));
  EXPECT_EQ(split("MergedWithNext", text), (Strings{"the", "-final", "-", "-countdown", "-"}));
  EXPECT_EQ(split("Removed", text, true), (Strings{"-", "-", "-", "-"}));
  EXPECT_EQ(split("Isolated", ""), Strings{});
}

TEST(PreTokenizer, ByteLevelSpellsBytes) {
  EXPECT_EQ(words(R"({"type": "ByteLevel", "add_prefix_space": false})", "Hi you're 12é\n\n x"),
            (Strings{"Hi", "Ġyou", "'re", "Ġ12", "Ã©", "ĊĊ", "Ġx"}));
  EXPECT_EQ(words(R"({"type": "ByteLevel", "add_prefix_space": true})", "Hi"), (Strings{"ĠHi"}));
  EXPECT_EQ(words(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})", "a b"), (Strings{"aĠb"}));
  EXPECT_EQ(words(R"({"type": "ByteLevel", "add_prefix_space": false})", std::string("a\0\xFF", 3)),
            (Strings{"a", "Āÿ"}));
}

TEST(PreTokenizer, MetaspaceSchemes) {
  const auto metaspace = [](const std::string& scheme, bool cut) {
    return R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": ")" + scheme + R"(", "split": )" +
           (cut ? "true}" : "false}");
  };
  EXPECT_EQ(words(metaspace("always", true), "a b  c"), (Strings{"▁a", "▁b", "▁", "▁c"}));
  EXPECT_EQ(words(metaspace("always", false), " a b"), (Strings{"▁a▁b"}));
  EXPECT_EQ(words(metaspace("first", false), "a b", TextStart::text), (Strings{"▁a▁b"}));
  EXPECT_EQ(words(metaspace("first", false), "a b", TextStart::part), (Strings{"a▁b"}));
  EXPECT_EQ(words(metaspace("always", true), "a b", TextStart::part), (Strings{"▁a", "▁b"}));
  EXPECT_EQ(words(metaspace("always", true), "a b", TextStart::continued), (Strings{"a", "▁b"}));
  EXPECT_EQ(words(metaspace("never", true), "a b"), (Strings{"a", "▁b"}));
  EXPECT_EQ(words(R"({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false})", "a b"),
            (Strings{"a", "▁b"}));
}

// Only the first word continues the text before; the others are split off as in one text.
TEST(PreTokenizer, AContinuedTextGetsNoSpaceInFront) {
  const std::string byte_level = R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})";
  EXPECT_EQ(words(byte_level, "a"), (Strings{"Ġa"}));
  EXPECT_EQ(words(byte_level, "a", TextStart::continued), (Strings{"a"}));
  const std::string digits = R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Metaspace"}]})";
  EXPECT_EQ(words(digits, "a12b"), (Strings{"▁a", "▁12", "▁b"}));
  EXPECT_EQ(words(digits, "a12b", TextStart::continued), (Strings{"a", "▁12", "▁b"}));
}

TEST(PreTokenizer, SequencesFeedEachWordOn) {
  EXPECT_EQ(
      words(
          R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "add_prefix_space": false}]})",
          "ab 12 c"),
      (Strings{"ab", "Ġ", "1", "2", "Ġc"}));
  EXPECT_EQ(words("null", "a b"), (Strings{"a b"}));
}

TEST(PreTokenizer, DigitsPunctuationAndWhitespace) {
  EXPECT_EQ(words(R"({"type": "Digits"})", "a12½b"), (Strings{"a", "12½", "b"}));
  EXPECT_EQ(words(R"({"type": "Punctuation"})", "a!?b—"), (Strings{"a", "!", "?", "b", "—"}));
  EXPECT_EQ(words(R"({"type": "Whitespace"})", "a, b_c\n!"), (Strings{"a", ",", "b_c", "!"}));
  EXPECT_EQ(words(R"({"type": "WhitespaceSplit"})", "a, b\n"), (Strings{"a,", "b"}));
}

TEST(PreTokenizer, TheWordsJoinToTheText) {
  const std::string text = "It's 12,345 words\xFF \t\n\n here\u3000日本語's!";
  std::string joined;
  for (const std::string& word : words(R"({"type": "ByteLevel", "add_prefix_space": false})", text))
    joined += unspell_bytes(word).value();
  EXPECT_EQ(joined, text);
}

TEST(PreTokenizer, UnknownKindsAndBehaviorsAreErrors) {
  EXPECT_THROW(words(R"({"type": "Bite"})", ""), Error);
  EXPECT_THROW(words(R"({"typ": "ByteLevel"})", ""), Error);
  EXPECT_THROW(words(R"([1])", ""), Error);
  EXPECT_THROW(split("Mixed", ""), Error);
  EXPECT_THROW(words(R"({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"})", ""), Error);
  EXPECT_THROW(words(R"({"type": "Metaspace", "prepend_scheme": "maybe"})", ""), Error);
}

}  // namespace
}  // namespace hone
