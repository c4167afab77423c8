#pragma once
// Text that is encoded in pieces, so that a piece has the same ids whatever follows it. Tokenizers of SentencePiece's
// kind put a space before a text: Prepend, or Metaspace with its prepend_scheme. Hugging Face does so at the beginning
// of a text and, except under the scheme "first", after each added token. A piece gets that space in these places only.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"

namespace hone {

// Appends the ids of a text that follows the text of `ids`. After an added token the text has the ids that it has
// behind this token in one text. Without ids it is the beginning.
void append_ids(std::vector<int32_t>& ids, std::string_view text, const Tokenizer& tokenizer);

struct PromptWithCompletion {
  std::vector<int32_t> ids;
  size_t prompt_length = 0;
};
// The prompt as a document (Tokenizer::encode_document), followed by its completion.
PromptWithCompletion encode_completion(std::string_view prompt, std::string_view completion,
                                       const Tokenizer& tokenizer);

// Where the text of each token ends in the text that the ids were made of. White space that an added token takes counts
// with the next token. Where a normalizer has changed the text, the ends are estimates.
std::vector<size_t> token_ends(std::span<const int32_t> ids, std::string_view text, const Tokenizer& tokenizer);

}  // namespace hone
