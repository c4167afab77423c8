#include "core/text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/base/rng.h"
#include "core/text/tokenizer/byte_level.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using Ids = std::vector<int32_t>;

// All bytes (ids 0 to 255 in their order), then " t", "he", " the", "ll"; special tokens from 300.
Json byte_level_json() {
  JsonObject vocab;
  for (const uint8_t byte : byte_alphabet().order) vocab.emplace_back(byte_alphabet().spelling[byte], vocab.size());
  for (const char* token : {"Ġt", "he", "Ġthe", "ll"}) vocab.emplace_back(token, vocab.size());
  Json json = parse_json(
      R"({"added_tokens": [{"id": 300, "content": "<|end|>", "special": true}, {"id": 301, "content": "<tool>", "special": false, "normalized": false, "rstrip": true}],
    "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<|end|>": {"ids": [300]}}}})",
      "test");
  json.set("model", JsonObject{{"type", "BPE"},
                               {"vocab", std::move(vocab)},
                               {"merges", Json::array(std::vector<std::string>{"Ġ t", "h e", "Ġt he", "l l"})}});
  return json;
}
Tokenizer byte_level() {
  return Tokenizer::from_json(byte_level_json(), "test",
                              JsonObject{{"eos_token", "<|end|>"}, {"chat_template", "{{ x }}"}});
}

int32_t byte_id(char byte) {
  const auto& order = byte_alphabet().order;
  return static_cast<int32_t>(std::find(order.begin(), order.end(), static_cast<uint8_t>(byte)) - order.begin());
}

TEST(Tokenizer, ByteLevelGolden) {
  const Tokenizer tokenizer = byte_level();
  EXPECT_EQ(tokenizer.encode("the then all"),
            (Ids{byte_id('t'), 257, 258, byte_id('n'), byte_id(' '), byte_id('a'), 259}));
  EXPECT_EQ(tokenizer.encode("e\u0301"), (Ids{byte_id('\xC3'), byte_id('\xA9')}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.vocab_size(), 302);
  EXPECT_EQ(tokenizer.find("Ġthe"), 258);
  EXPECT_EQ(tokenizer.find("<tool>"), 301);
  EXPECT_EQ(tokenizer.find("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.token(258), "Ġthe");
  EXPECT_EQ(tokenizer.token_bytes(258), " the");
  EXPECT_EQ(tokenizer.token_bytes(byte_id('\xC3')), "\xC3");
}

TEST(Tokenizer, SpecialTokensInTextAreRecognizedUnlessTurnedOff) {
  const Tokenizer tokenizer = byte_level();
  EXPECT_EQ(tokenizer.encode("ll<|end|>ll<tool>  ll"), (Ids{259, 300, 259, 301, 259}));
  const Ids plain = tokenizer.encode("<|end|><tool>", false);
  EXPECT_EQ(plain.size(), 8u);
  EXPECT_EQ(plain.back(), 301);
  EXPECT_EQ(tokenizer.decode(plain), "<|end|><tool>");
  EXPECT_EQ(tokenizer.encode_document("ll"), (Ids{300, 259}));
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(301) || tokenizer.is_special(-1) || tokenizer.is_special(1 << 30));
  EXPECT_EQ(tokenizer.decode(Ids{300, 259, 301, 300}, true), "ll<tool>");
  EXPECT_EQ(tokenizer.eos(), 300);
  EXPECT_EQ(tokenizer.stop_ids(), Ids{300});
}

TEST(Tokenizer, DecodeUndoesEncodeForAnyBytes) {
  Json json = byte_level_json();
  json.set("normalizer", nullptr);  // NFC changes text
  const Tokenizer tokenizer = Tokenizer::from_json(json, "test");
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    std::string text;
    for (uint64_t n = rng.below(60); n > 0; --n)
      text += rng.below(3) == 0 ? std::string(1, static_cast<char>(rng.below(256)))
                                : std::string(" the é日<|end|>").substr(rng.below(10));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false)), text);
    std::string pieces;
    for (const int32_t id : tokenizer.encode(text, false)) pieces += tokenizer.token_bytes(id);
    EXPECT_EQ(pieces, text);
  }
}

TEST(Tokenizer, IdsThatNoTokenHasAreErrorsOrHaveNoText) {
  const Tokenizer tokenizer = byte_level();
  for (const int32_t id : {-1, 270, 302, INT32_MAX, INT32_MIN}) {
    EXPECT_THROW(tokenizer.decode(Ids{1, id}), Error) << id;
    EXPECT_THROW(tokenizer.token(id), Error) << id;
    EXPECT_EQ(tokenizer.token_bytes(id), "") << id;
    EXPECT_EQ(tokenizer.decode(Ids{1, id, 1}, true), tokenizer.decode(Ids{1, 1}, true)) << id;
  }
}

TEST(Tokenizer, SavedFoldersReadTheSame) {
  const Tokenizer tokenizer = byte_level();
  const test::TemporaryFolder folder;
  tokenizer.save(folder.path() / "deep" / "er");
  const Tokenizer again = Tokenizer::load(folder.path() / "deep" / "er");
  const std::string text = "the then\u0301 all<|end|><tool> 日\xFF";
  EXPECT_EQ(again.encode(text), tokenizer.encode(text));
  EXPECT_EQ(again.encode_document(text), tokenizer.encode_document(text));
  EXPECT_EQ(again.eos(), 300);
  EXPECT_EQ(again.chat_template(), "{{ x }}");
  EXPECT_EQ(again.vocab_size(), tokenizer.vocab_size());
}

TEST(Tokenizer, NormalizedTokensAreFoundInNormalizedText) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      parse_json(
          R"({"added_tokens": [{"id": 5, "content": "é!", "normalized": true}, {"id": 6, "content": "é?", "normalized": false}], "normalizer": {"type": "NFD"}, "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "unk_token": "x", "vocab": {"x": 0, "e": 1, "\u0301": 2, "?": 3, "!": 4}, "merges": []}})",
          "test"),
      "test");
  EXPECT_EQ(tokenizer.encode("e\u0301!é!"), (Ids{5, 5}));
  EXPECT_EQ(tokenizer.encode("é?e\u0301?"), (Ids{6, 1, 2, 3}));
}

TEST(Tokenizer, SentencePieceStyleGolden) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      parse_json(
          R"({"added_tokens": [{"id": 1, "content": "<s>", "special": true}], "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}, "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
        "vocab": {"<unk>": 0, "<s>": 1, "<0xC3>": 2, "<0xA9>": 3, "▁": 4, "a": 5, "▁a": 6}, "merges": ["▁ a"]}})",
          "test"),
      "test");
  EXPECT_EQ(tokenizer.encode("a a<s>a"), (Ids{6, 6, 1, 5}));
  EXPECT_EQ(tokenizer.encode("éa日本"), (Ids{4, 2, 3, 5, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{6, 2, 3, 6}), "aé a");
  EXPECT_EQ(tokenizer.token_bytes(6), " a");
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = byte_level();
  std::string text;
  for (int i = 0; i < 2000; ++i) text += " the hello 日 é" + std::to_string(i * 7919 % 101);
  const Ids alone = byte_level().encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = tokenizer.encode(text); });
  for (auto& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, alone);
}

TEST(Tokenizer, HostileTextsAreEncodedInTime) {
  const Tokenizer tokenizer = byte_level();
  for (const std::string& unit :
       {std::string(" "), std::string("h"), std::string("he"), std::string("\n "), std::string("'"),
        std::string("\xFF"), std::string("a\u0301"), std::string("<|end|")}) {
    std::string text;
    while (text.size() < 400000) text += unit;
    EXPECT_GE(tokenizer.encode(text).size(), 100000u) << unit;
  }
}

}  // namespace
}  // namespace hone
