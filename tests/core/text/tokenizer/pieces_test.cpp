// Text in pieces has the ids of the whole text, with every way in which a tokenizer puts a space before it.
#include "core/text/tokenizer/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/text/chat.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using Ids = std::vector<int32_t>;

const std::string kLegacy =
    R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, )"
    R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";

std::string metaspace(const std::string& scheme) {
  return R"("pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": ")" + scheme +
         R"(", "split": false})";
}

// A vocabulary of SentencePiece's kind. <s> is 1, </s> 2, ▁ 3, a to d 4 to 7, ▁a to ▁d 8 to 11, a line break 12.
Tokenizer tokenizer(const std::string& spaces, const std::string& of_added = "") {
  const auto added = [&](int id, const char* text) {
    return concat(R"({"id": )", id, R"(, "content": ")", text, R"(", "special": true)", of_added, "}");
  };
  const std::string json =
      R"({"added_tokens": [)" + added(1, "<s>") + ", " + added(2, "</s>") + "], " + spaces +
      R"(, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4,
        "b": 5, "c": 6, "d": 7, "▁a": 8, "▁b": 9, "▁c": 10, "▁d": 11, "\n": 12},
        "merges": ["▁ a", "▁ b", "▁ c", "▁ d"]}})";
  return Tokenizer::from_json(parse_json(json, "test"), "test",
                              JsonObject{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

Ids in_pieces(const Tokenizer& tokenizer, const std::vector<std::string>& pieces) {
  Ids out;
  for (const std::string& piece : pieces) append_ids(out, piece, tokenizer);
  return out;
}

// Pieces between which no tokens merge.
const std::vector<std::vector<std::string>> kPieces = {
    {"a\n", "b"},
    {"a\n", "b</s>", "\n", "c a", "</s>"},
    {"<s>", "a\n", "b</s>", "c</s>", " d"},
    {"<s>a", " b\n", "", "b</s>", " c", "d"},
    {"a", " ", "\nb", "<s>", "<s>", "c"},
};

TEST(Pieces, HaveTheIdsOfTheWholeText) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {kLegacy, R"(, "normalized": false)"},
      {kLegacy, R"(, "normalized": true)"},
      {kLegacy, R"(, "rstrip": true)"},
      {metaspace("always"), ""},
      {metaspace("first"), ""},
      {metaspace("never"), ""},
      {metaspace("first"), R"(, "rstrip": true, "lstrip": true)"},
      {R"("normalizer": {"type": "NFC"})", R"(, "normalized": true)"},
  };
  for (const auto& [spaces, of_added] : kinds) {
    const Tokenizer t = tokenizer(spaces, of_added);
    for (const std::vector<std::string>& pieces : kPieces) {
      std::string text;
      for (const std::string& piece : pieces) text += piece;
      EXPECT_EQ(in_pieces(t, pieces), t.encode(text)) << spaces << of_added << "\n" << text;
    }
  }
}

// A reply that follows plain text began with a space that the text did not have.
TEST(Pieces, TextThatFollowsPlainTextGetsNoSpace) {
  for (const std::string& spaces : {kLegacy, metaspace("always"), metaspace("first")}) {
    const Tokenizer t = tokenizer(spaces);
    EXPECT_EQ(in_pieces(t, {"a\n", "b"}), (Ids{8, 12, 5})) << spaces;
    EXPECT_EQ(in_pieces(t, {"a\n", " b"}), (Ids{8, 12, 9})) << spaces;
  }
}

TEST(Pieces, TextAfterASpecialTokenGetsTheSpaceOfItsScheme) {
  EXPECT_EQ(in_pieces(tokenizer(kLegacy), {"a</s>", "b"}), (Ids{8, 2, 9}));
  EXPECT_EQ(in_pieces(tokenizer(metaspace("always")), {"a</s>", "b"}), (Ids{8, 2, 9}));
  EXPECT_EQ(in_pieces(tokenizer(metaspace("first")), {"a</s>", "b"}), (Ids{8, 2, 5}));
  EXPECT_EQ(in_pieces(tokenizer(metaspace("never")), {"a</s>", "b"}), (Ids{4, 2, 5}));
}

TEST(Pieces, ACompletionContinuesItsPrompt) {
  const PromptWithCompletion both = encode_completion("a", " b", tokenizer(kLegacy));
  EXPECT_EQ(both.ids, (Ids{1, 8, 9}));
  EXPECT_EQ(both.prompt_length, 2u);
  // Nothing is before it but BOS, which is no part of the text.
  for (const std::string& spaces : {kLegacy, metaspace("first")})
    EXPECT_EQ(encode_completion("", "b", tokenizer(spaces)).ids, tokenizer(spaces).encode_document("b")) << spaces;
}

TEST(Pieces, EndsOfTokensAreThoseOfTheText) {
  const auto ends = [](const Tokenizer& t, const std::string& text) { return token_ends(t.encode(text), text, t); };
  using Ends = std::vector<size_t>;
  EXPECT_EQ(ends(tokenizer(kLegacy), "a b\nc"), (Ends{1, 3, 4, 5}));
  EXPECT_EQ(ends(tokenizer(kLegacy), " a<s>b"), (Ends{1, 2, 5, 6}));  // ▁, ▁a, <s>, ▁b
  EXPECT_EQ(ends(tokenizer(metaspace("never")), "ab c"), (Ends{1, 2, 4}));
  EXPECT_EQ(ends(tokenizer(kLegacy, R"(, "rstrip": true)"), "a<s>  \nb c"), (Ends{1, 4, 8, 10}));
  EXPECT_EQ(ends(tokenizer(kLegacy), "a?b"), (Ends{1, 3, 3}));  // ? is <unk>, whose end is an estimate
  EXPECT_EQ(ends(tokenizer(kLegacy), ""), Ends{});
}

// transformers 5.23: apply_chat_template(tokenize=True) with this conversation's text.
TEST(Pieces, AConversationHasTheIdsOfTransformers) {
  HONE_SHARED_OR_SKIP(folder, "data/weights/stories260K");
  const Tokenizer t = Tokenizer::load(folder);
  const ChatTokens tokens =
      ChatFormat::make("plain", t)
          .encode(t, {{"user", "Hello there, how are you?", {}}, {"assistant", "xyz fine", {}}}, false);
  EXPECT_EQ(tokens.ids,
            (Ids{1, 346, 306, 414, 383, 432, 270, 327, 261, 276, 364, 450, 13, 444, 422, 451, 272, 271, 411, 2}));
  EXPECT_EQ(std::count(tokens.mask.begin(), tokens.mask.end(), 1.0f), 7);
}

}  // namespace
}  // namespace hone
