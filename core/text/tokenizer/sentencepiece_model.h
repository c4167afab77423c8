#pragma once
// Converts SentencePiece's tokenizer.model (a protocol buffer, BPE type) to tokenizer.json: pieces and scores become
// vocabulary and merges.
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace hone {

struct SentencePieceJson {
  Json tokenizer;  // tokenizer.json
  Json config;     // tokenizer_config.json: bos_token, eos_token, pad_token and unk_token, as far as the model has them
};

// bytes: the entire file. Lengths and field types are checked before use. Errors name `source` and the bad value.
// Unigram models and normalization by a character map are not supported (Error).
SentencePieceJson read_sentencepiece(std::string_view bytes, const std::string& source);

}  // namespace hone
