#pragma once
// A tokenizer for tests of chat templates: one token per byte, no merges, and added tokens.
#include <string>
#include <vector>

#include "core/text/tokenizer/byte_level.h"
#include "core/text/tokenizer/tokenizer.h"

namespace hone::test {

struct ChatTokenizer {
  std::string chat_template = "", bos = "", eos = "<|endoftext|>";
  std::vector<std::string> special = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, added = {};  // added: not special

  // The content of tokenizer.json.
  Json file() const {
    JsonObject vocabulary;
    for (int64_t b = 0; b < 256; ++b) vocabulary.emplace_back(spell_bytes(std::string(1, static_cast<char>(b))), b);
    JsonArray tokens;
    for (const auto* names : {&special, &added})
      for (const std::string& name : *names)
        tokens.push_back(JsonObject{{"id", 256 + std::ssize(tokens)},
                                    {"content", name},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", names == &special}});
    const Json level =
        JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    return JsonObject{{"added_tokens", tokens},
                      {"pre_tokenizer", level},
                      {"decoder", level},
                      {"model", JsonObject{{"type", "BPE"}, {"vocab", vocabulary}, {"merges", JsonArray{}}}}};
  }
  // The content of tokenizer_config.json.
  Json config() const {
    Json out = JsonObject{{"eos_token", eos}};
    if (!bos.empty()) out.set("bos_token", bos);
    if (!chat_template.empty()) out.set("chat_template", chat_template);
    return out;
  }
  Tokenizer make() const { return Tokenizer::from_json(file(), "test", config()); }
};

}  // namespace hone::test
