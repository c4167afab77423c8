#include "core/text/detokenizer.h"

#include <gtest/gtest.h>

#include "tests/core/text/tokenizer/byte_tokenizer.h"

namespace hone {
namespace {

std::vector<std::string> file_slices(Detokenizer text, const std::string& bytes) {
  std::vector<std::string> out;
  for (const int32_t id : test::byte_ids(bytes)) out.push_back(text.add(id));
  return out;
}

TEST(Detokenizer, ShowsOnlyCompleteCharacters) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  EXPECT_EQ(file_slices(Detokenizer(&tokenizer, {}, 0, false), "aé€"),
            (std::vector<std::string>{"a", "", "é", "", "", "€"}));
  // A stray byte is shown once it cannot be part of a character.
  EXPECT_EQ(file_slices(Detokenizer(&tokenizer, {}, 0, false), "\xC3z"), (std::vector<std::string>{"", "\xC3z"}));
}

TEST(Detokenizer, HoldsBackWhatMayBecomeAStopString) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  EXPECT_EQ(file_slices(Detokenizer(&tokenizer, {"END", "\n\n"}, 0, false), "aENxE\nb"),
            (std::vector<std::string>{"a", "", "", "ENx", "", "E", "\nb"}));
  Detokenizer text(&tokenizer, {"END"}, 0, false);
  std::string shown;
  for (const int32_t id : test::byte_ids("okEND")) shown += text.add(id);
  EXPECT_EQ(shown, "ok");
  EXPECT_EQ(text.rest("ok"), "");
}

TEST(Detokenizer, AStopStringBeforeMinTokensIsText) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  EXPECT_EQ(file_slices(Detokenizer(&tokenizer, {"ab"}, 3, false), "abcda"),
            (std::vector<std::string>{"", "ab", "c", "d", ""}));
  EXPECT_EQ(file_slices(Detokenizer(&tokenizer, {"ab"}, 1, false), "abc"),
            (std::vector<std::string>{"", "", ""}));  // it ends after the first id
}

// A model may have more ids than its tokenizer: Qwen's do.
TEST(Detokenizer, AnIdThatNoTokenHasIsNoText) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  Detokenizer text(&tokenizer, {}, 0, false);
  EXPECT_EQ(text.add('a') + text.add(265) + text.add('b'), "ab");
}

TEST(Detokenizer, TheRestIsWhatWasNotShown) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  Detokenizer text(&tokenizer, {"END"}, 0, false);
  for (const int32_t id : test::byte_ids("abEN")) text.add(id);
  EXPECT_EQ(text.rest("abEN"), "EN");
  EXPECT_EQ(Detokenizer(nullptr, {}, 0, false).rest(""), "");
}

// As SentencePiece's tokenizers have it: words begin with a space, which is stripped where a text begins.
Tokenizer spaced_tokenizer() {
  const Json strip = JsonObject{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const Json replace = JsonObject{{"type", "Replace"}, {"pattern", JsonObject{{"String", "▁"}}}, {"content", " "}};
  const Json decoder =
      JsonObject{{"type", "Sequence"}, {"decoders", JsonArray{replace, JsonObject{{"type", "Fuse"}}, strip}}};
  const Json model = JsonObject{{"type", "BPE"}, {"vocab", JsonObject{{"▁a", 0}, {"b", 1}}}, {"merges", JsonArray{}}};
  return Tokenizer::from_json(JsonObject{{"version", "1.0"},
                                         {"added_tokens", JsonArray{}},
                                         {"normalizer", nullptr},
                                         {"pre_tokenizer", nullptr},
                                         {"post_processor", nullptr},
                                         {"decoder", decoder},
                                         {"model", model}},
                              "test");
}

TEST(Detokenizer, ContinuesAPromptWithItsLeadingSpace) {
  const Tokenizer tokenizer = spaced_tokenizer();
  const std::vector<int32_t> ids{0, 1, 0};
  EXPECT_EQ(tokenizer.decode(ids), "ab a");
  EXPECT_EQ(leading_space(&tokenizer, ids), " ");
  EXPECT_EQ(leading_space(&tokenizer, std::span(ids).subspan(1)), "");
  EXPECT_EQ(leading_space(&tokenizer, {}), "");
  EXPECT_EQ(leading_space(nullptr, ids), "");
  for (const bool continues : {false, true}) {
    Detokenizer text(&tokenizer, {}, 0, continues);
    std::string all;
    for (const int32_t id : ids) all += text.add(id);
    EXPECT_EQ(all, continues ? " ab a" : "ab a");
  }
}

TEST(WholeCharacters, EndsBeforeAnIncompleteCharacter) {
  EXPECT_EQ(whole_characters(""), 0u);
  EXPECT_EQ(whole_characters("abc"), 3u);
  EXPECT_EQ(whole_characters("a\xE2\x82"), 1u);
  EXPECT_EQ(whole_characters("a\xE2\x82\xAC"), 4u);
  EXPECT_EQ(whole_characters("\xF0\x9F\x98"), 0u);
  EXPECT_EQ(whole_characters("a\x80\x80\x80\x80"), 5u);  // no character at all
}

}  // namespace
}  // namespace hone
