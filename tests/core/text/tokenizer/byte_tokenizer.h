#pragma once
// A tokenizer whose ids are bytes, for tests.
#include <string>
#include <vector>

#include "core/text/tokenizer/byte_level.h"
#include "core/text/tokenizer/tokenizer.h"

namespace hone::test {

// 256 bytes, <|im_start|> and <|im_end|>, which ends a turn.
inline Tokenizer byte_tokenizer() {
  JsonObject vocabulary;
  for (int b = 0; b < 256; ++b) vocabulary.emplace_back(spell_bytes(std::string(1, static_cast<char>(b))), b);
  const auto special = [](int id, const char* text) {
    return JsonObject{{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
                      {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const Json byte_level =
      JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json json = JsonObject{{"version", "1.0"},
                               {"added_tokens", JsonArray{special(256, "<|im_start|>"), special(257, "<|im_end|>")}},
                               {"normalizer", nullptr},
                               {"pre_tokenizer", byte_level},
                               {"post_processor", nullptr},
                               {"decoder", byte_level},
                               {"model", JsonObject{{"type", "BPE"}, {"vocab", vocabulary}, {"merges", JsonArray{}}}}};
  return Tokenizer::from_json(json, "test", JsonObject{{"eos_token", "<|im_end|>"}});
}

// Returns one id per byte.
inline std::vector<int32_t> byte_ids(const std::string& bytes) {
  std::vector<int32_t> out;
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

}  // namespace hone::test
