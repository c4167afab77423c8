#include "rollout/reply_text.h"

#include <gtest/gtest.h>

#include "tests/rollout/tiny_server.h"

namespace hone {
namespace {

std::vector<std::string> pieces_of(ReplyText text, const std::string& bytes) {
  std::vector<std::string> out;
  for (const int32_t id : test::byte_ids(bytes)) out.push_back(text.add(id));
  return out;
}

TEST(ReplyText, ShowsWholeCharactersAlone) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  EXPECT_EQ(pieces_of(ReplyText(&tokenizer, {}), "aé€"), (std::vector<std::string>{"a", "", "é", "", "", "€"}));
  // A stray byte is shown once it cannot be part of a character.
  EXPECT_EQ(pieces_of(ReplyText(&tokenizer, {}), "\xC3z"), (std::vector<std::string>{"", "\xC3z"}));
}

TEST(ReplyText, HoldsBackWhatMayBecomeAStopString) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  EXPECT_EQ(pieces_of(ReplyText(&tokenizer, {"END", "\n\n"}), "aENxE\nb"), (std::vector<std::string>{"a", "", "", "ENx", "", "E", "\nb"}));
  ReplyText text(&tokenizer, {"END"});
  std::string shown;
  for (const int32_t id : test::byte_ids("okEND")) shown += text.add(id);
  EXPECT_EQ(shown, "ok");
  EXPECT_EQ(text.rest("ok"), "");
}

TEST(ReplyText, TheRestIsWhatWasNotShown) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  ReplyText text(&tokenizer, {"END"});
  for (const int32_t id : test::byte_ids("abEN")) text.add(id);
  EXPECT_EQ(text.rest("abEN"), "EN");
  EXPECT_EQ(ReplyText(nullptr, {}).rest(""), "");
}

TEST(WholeCharacters, EndsBeforeACharacterThatIsNotWhole) {
  EXPECT_EQ(whole_characters(""), 0u);
  EXPECT_EQ(whole_characters("abc"), 3u);
  EXPECT_EQ(whole_characters("a\xE2\x82"), 1u);
  EXPECT_EQ(whole_characters("a\xE2\x82\xAC"), 4u);
  EXPECT_EQ(whole_characters("\xF0\x9F\x98"), 0u);
  EXPECT_EQ(whole_characters("a\x80\x80\x80\x80"), 5u);  // no character at all
}

}  // namespace
}  // namespace hone
