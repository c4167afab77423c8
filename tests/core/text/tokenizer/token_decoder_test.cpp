#include "core/text/tokenizer/token_decoder.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

std::string decoded(const std::string& json, std::vector<std::string> tokens, bool whole = true) {
  make_token_decoder(parse_json(json, "test"), "test")->decode(tokens, whole);
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

TEST(TokenDecoder, ByteLevelJoinsBytesAndKeepsOtherTokens) {
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {"H", "Ã", "©", "Ġx", "<｜end｜>"}), "Hé x<｜end｜>");
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {"Ã"}), "\xC3");
}

TEST(TokenDecoder, LlamaSequence) {
  const std::string llama =
      R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  EXPECT_EQ(decoded(llama, {"▁▁a", "<0xC3>", "<0xA9>", "▁b"}), " aé b");
  EXPECT_EQ(decoded(llama, {"▁b"}, false), " b");
  EXPECT_EQ(decoded(llama, {"<0xZZ>", "<0x1>"}), "<0xZZ><0x1>");
  EXPECT_EQ(decoded(llama, {}), "");
}

TEST(TokenDecoder, MetaspaceDropsTheMarkThatBeganTheText) {
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})", {"▁a", "▁b"}), "a b");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})", {"▁a", "▁b"}), " a b");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})", {"▁a"}, false), " a");
}

TEST(TokenDecoder, NullJoinsWithSpaces) { EXPECT_EQ(decoded("null", {"a", "b"}), "a b"); }

TEST(TokenDecoder, StripStopTakesFromTheEnd) {
  EXPECT_EQ(decoded(R"({"type": "Strip", "content": "-", "start": 0, "stop": 2})", {"a---"}), "a-");
}

TEST(TokenDecoder, BadOnesAreErrors) {
  EXPECT_THROW(decoded(R"({"type": "Bytes"})", {}), Error);
  EXPECT_THROW(decoded(R"({"type": "Strip", "content": ""})", {}), Error);
  EXPECT_THROW(decoded(R"({"type": "Sequence", "decoders": [null]})", {}), Error);
}

}  // namespace
}  // namespace hone
