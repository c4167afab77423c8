#include "core/text/tokenizer/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "core/base/rng.h"
#include "core/text/tokenizer/tokenizer.h"

namespace hone {
namespace {

// A protocol-buffer writer for this test.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}
std::string number(uint64_t field, uint64_t value) { return varint(field << 3) + varint(value); }
std::string bytes(uint64_t field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}
std::string real(uint64_t field, float value) {
  std::string out = varint(field << 3 | 5);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(bits >> shift));
  return out;
}
std::string piece(const std::string& text, float score, uint64_t type = 1) {
  return bytes(1, bytes(1, text) + real(2, score) + number(3, type));
}

std::string trainer() { return bytes(2, number(3, 2) + number(35, 1)); }

// <unk> <s> </s>, the bytes of é, ▁ a b ab ▁ab ba
std::string small_model(const std::string& normalizer = number(4, 0)) {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("<0xC3>", 0, 6) +
         piece("<0xA9>", 0, 6) + piece("\u2581", -4) + piece("a", -5) + piece("b", -6) + piece("ab", -1) +
         piece("\u2581ab", -2) + piece("ba", -0.5f) + trainer() + bytes(3, normalizer);
}

Tokenizer load(const std::string& model) {
  const SentencePieceJson json = read_sentencepiece(model, "m.model");
  return Tokenizer::from_json(json.tokenizer, "m.model", json.config);
}
using Ids = std::vector<int32_t>;

TEST(SentencePieceModel, BestScoreMergesFirst) {
  const Tokenizer tokenizer = load(small_model());
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{9}));
  EXPECT_EQ(tokenizer.encode("aba"), (Ids{5, 6, 10}));
  EXPECT_EQ(tokenizer.encode("ab  ab"), (Ids{9, 5, 9}));
  EXPECT_EQ(tokenizer.encode("é\u65E5"), (Ids{5, 3, 4, 0}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(" ab é")), " ab é");
  EXPECT_EQ(tokenizer.encode_document("ab"), (Ids{1, 9}));
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_EQ(tokenizer.encode("ab</s>"), (Ids{9, 2}));
}

TEST(SentencePieceModel, NormalizerSwitches) {
  EXPECT_EQ(load(small_model(number(3, 0) + number(4, 0))).encode("ab"), (Ids{8}));
  EXPECT_EQ(load(small_model("")).encode("  ab   ab "), (Ids{9, 9}));
  EXPECT_EQ(load(small_model(number(4, 0))).encode("ab "), (Ids{9, 5}));
}

TEST(SentencePieceModel, WhatCannotBeReadIsNamed) {
  const auto message = [](const std::string& model) {
    try {
      read_sentencepiece(model, "m.model");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  EXPECT_NE(message("").find("no pieces"), std::string::npos);
  EXPECT_NE(message("IQ== 0\nIg== 1\n").find("not a SentencePiece model"), std::string::npos);
  EXPECT_NE(message(piece("a", 0) + bytes(2, number(3, 1))).find("model_type is 1"), std::string::npos);
  EXPECT_NE(message(small_model(bytes(1, "nmt_nfkc") + bytes(2, "xx"))).find("nmt_nfkc"), std::string::npos);
  EXPECT_NE(message(piece("a", std::numeric_limits<float>::quiet_NaN())).find("finite"), std::string::npos);
  EXPECT_NE(message(piece("", 0)).find("piece 0"), std::string::npos);
  EXPECT_NE(message(piece(std::string(5000, 'a'), 0)).find("5000 bytes"), std::string::npos);
  EXPECT_NE(message(piece("\xFF", 0)).find("UTF-8"), std::string::npos);
  EXPECT_NE(message(varint(1 << 3 | 2) + varint(uint64_t{1} << 62)).find("cut short"), std::string::npos);
  EXPECT_NE(message(std::string(20, '\xFF')).find("ten bytes"), std::string::npos);
  EXPECT_NE(message(varint(1 << 3 | 3)).find("wire type 3"), std::string::npos);
  EXPECT_NE(message(number(1, 5)).find("wire type 0"), std::string::npos);
}

TEST(SentencePieceModel, DamagedFilesAreReadOrRefusedButNeverMore) {
  const std::string good = small_model();
  for (size_t cut = 0; cut < good.size(); ++cut) {
    try {
      load(good.substr(0, cut)).encode("ab é");
    } catch (const Error&) {}
  }
  Rng rng(1);
  int refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bad = good;
    for (int flips = 0; flips < 3; ++flips) bad[rng.below(bad.size())] = static_cast<char>(rng.below(256));
    try {
      load(bad).encode("ab é");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace hone
