#pragma once
// The `pre_tokenizer` of a tokenizer.json: splits text into the words that BPE encodes. Each type ("ByteLevel", "Split"
// and others) is a factory in pre_tokenizers().
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/function_ref.h"
#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

// What is before a text that is split. Some types add a space to its front.
enum class TextStart : uint8_t {
  text,       // nothing: it begins the entire text
  part,       // an added token, or a word that another pre-tokenizer split off
  continued,  // text that was encoded before: nothing is added in front
};

class PreTokenizer {
 public:
  // word: valid only during the call. start: of the word.
  using Emit = FunctionRef<void(std::string_view word, TextStart start)>;

  virtual ~PreTokenizer() = default;
  // Emits the words of the text in order. The caller skips empty words.
  virtual void split(std::string_view text, TextStart start, Emit emit) const = 0;
};

using PreTokenizerFactory = std::unique_ptr<PreTokenizer> (*)(const Json& json, const std::string& where);
Registry<PreTokenizerFactory>& pre_tokenizers();

// JSON null: the entire text is one word.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json, const std::string& where);

}  // namespace hone
