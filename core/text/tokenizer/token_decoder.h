#pragma once
// The `decoder` of a tokenizer.json: turns spellings of tokens into text. Each type ("ByteLevel", "ByteFallback", ...)
// is a factory in token_decoders().
#include <memory>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Rewrites the tokens; joined they are the text. complete: the tokens are a complete text. If false, nothing is
  // stripped at its begin and end. Bytes are kept even if they are no valid UTF-8.
  virtual void decode(std::vector<std::string>& tokens, bool complete) const = 0;
};

using TokenDecoderFactory = std::unique_ptr<TokenDecoder> (*)(const Json& json, const std::string& where);
Registry<TokenDecoderFactory>& token_decoders();

// JSON null: tokens are joined with single spaces, as in Hugging Face's tokenizers.
std::unique_ptr<TokenDecoder> make_token_decoder(const Json& json, const std::string& where);

}  // namespace hone
