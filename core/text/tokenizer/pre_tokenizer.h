#pragma once
// Splits text into the words that BPE reads: the `pre_tokenizer` of a tokenizer.json. A kind ("ByteLevel",
// "Split", ...) is a factory in pre_tokenizers().
#include <memory>
#include <string>
#include <string_view>

#include "core/base/function_ref.h"
#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

class PreTokenizer {
 public:
  // A word is valid during the call; first: it begins the text (Metaspace needs it).
  using Emit = FunctionRef<void(std::string_view word, bool first)>;

  virtual ~PreTokenizer() = default;
  // Emits the words of the text in order; the caller drops empty words.
  virtual void split(std::string_view text, bool first, Emit emit) const = 0;
};

using PreTokenizerFactory = std::unique_ptr<PreTokenizer> (*)(const Json& json, const std::string& where);
Registry<PreTokenizerFactory>& pre_tokenizers();

// null makes the text one word.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json, const std::string& where);

}  // namespace hone
