#pragma once
// Converts SentencePiece's tokenizer.model (a protocol buffer, BPE type) to tokenizer.json: pieces and scores become
// vocabulary and merges.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace hone {

struct SentencePiece {
  enum Type : int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text;
  float score = 0;
  int64_t type = normal;
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;  // by id; without text: the id has no token
  int64_t type = 1;                   // 1 unigram, 2 BPE
  bool byte_fallback = false, space_as_suffix = false;
  int64_t unk = 0, bos = 1, eos = 2, pad = -1;
  bool dummy_prefix = true, collapse_spaces = true, mark_spaces = true;
  bool add_bos = true, add_eos = false;  // around a document
  std::string rule;
  bool character_map = false;
};

struct SentencePieceJson {
  Json tokenizer;  // tokenizer.json
  Json config;     // tokenizer_config.json: bos_token, eos_token, pad_token and unk_token, as far as the model has them
};

// bytes: the entire file. Lengths and field types are checked before use. Errors name `source` and the bad value.
// Unigram models and normalization by a character map are not supported (Error).
SentencePieceJson read_sentencepiece(std::string_view bytes, const std::string& source);

// The same for a model that was read elsewhere. Its type must be BPE, without a character map.
SentencePieceJson sentencepiece_json(const SentencePieceModel& model);

}  // namespace hone
