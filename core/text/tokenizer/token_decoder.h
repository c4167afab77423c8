#pragma once
// Turns spelled tokens into text: the `decoder` of a tokenizer.json. A kind ("ByteLevel", "ByteFallback", ...) is
// a factory in token_decoders().
#include <memory>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Rewrites the tokens; joined they are the text. whole: they are a complete text; false for one token inside a text,
  // whose ends are then not stripped. Bytes are kept as they are, even if they are not valid UTF-8.
  virtual void decode(std::vector<std::string>& tokens, bool whole) const = 0;
};

using TokenDecoderFactory = std::unique_ptr<TokenDecoder> (*)(const Json& json, const std::string& where);
Registry<TokenDecoderFactory>& token_decoders();

// null joins with single spaces, as Hugging Face does without a decoder.
std::unique_ptr<TokenDecoder> make_token_decoder(const Json& json, const std::string& where);

}  // namespace hone
