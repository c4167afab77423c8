#pragma once
// Reads and writes a Hugging Face tokenizer.json: added tokens, normalizer, pre-tokenizer, BPE model, post-processor
// and decoder.
#include <memory>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/text/tokenizer/added_tokens.h"
#include "core/text/tokenizer/bpe.h"
#include "core/text/tokenizer/normalizer.h"
#include "core/text/tokenizer/post_processor.h"
#include "core/text/tokenizer/pre_tokenizer.h"
#include "core/text/tokenizer/token_decoder.h"

namespace hone {

struct TokenizerParts {
  std::vector<AddedToken> added;
  std::unique_ptr<Normalizer> normalizer;  // or nullptr
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Bpe> model;
  DocumentFrame frame;
  std::unique_ptr<TokenDecoder> decoder;
  int32_t vocab_size = 0;  // one past the largest id
  Json document;           // the file without vocabulary, merges and added tokens
};

// Errors name source and field. Ids may have gaps, but must be below a small multiple of the number of tokens: a file
// cannot make hone allocate much more than its own size.
TokenizerParts read_tokenizer_json(const Json& json, const std::string& source);
Json write_tokenizer_json(const TokenizerParts& parts);

}  // namespace hone
