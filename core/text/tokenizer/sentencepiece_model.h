#pragma once
// SentencePiece's tokenizer.model (a protocol buffer) of BPE type, as a tokenizer.json: its pieces and scores become
// vocabulary and merges.
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace hone {

struct SentencePieceJson {
  Json tokenizer;  // tokenizer.json
  Json config;     // tokenizer_config.json: bos_token, eos_token, pad_token, unk_token as far as the model has them
};

// bytes: the content of the file. Lengths and field types are checked before use; Errors name source and what was
// found. Unigram models and text normalization by a character map are Errors that say so.
SentencePieceJson read_sentencepiece(std::string_view bytes, const std::string& source);

}  // namespace hone
