#pragma once
// The pre-tokenizers of BPE vocabularies by the names of llama.cpp (tokenizer.ggml.pre): "llama-bpe", "qwen2", ...
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace hone {

struct GgufPreType {
  std::vector<std::string_view> names;  // the first is written
  Json pre_tokenizer;                   // of tokenizer.json
  bool ignore_merges = false;           // of tokenizer.json's model
  bool nfc = false;                     // the text is normalized (NFC) first
  bool add_bos = false;                 // the default of tokenizer.ggml.add_bos_token
};

// Throws an Error that lists the known names. where: begins the message.
const GgufPreType& gguf_pre_type(std::string_view name, std::string_view where);
// The type of a tokenizer.json; nullptr if none has its pre-tokenizer.
const GgufPreType* find_gguf_pre_type(const Json& tokenizer_json);

}  // namespace hone
