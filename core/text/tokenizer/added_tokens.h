#pragma once
// The `added_tokens` of a tokenizer.json: tokens (special ones too) that are found in the text before it is split into
// words.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/function_ref.h"

namespace hone {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // left out of decoded text on request
  bool single_word = false;  // matches only between non-word characters
  bool lstrip = false;       // matches white space before it too
  bool rstrip = false;       // matches white space after it too
  bool normalized = false;   // searched in the normalized text
};

// Finds tokens in text: leftmost match, longest of several. Matches do not overlap.
class AddedTokenMatcher {
 public:
  // Tokens with empty content are never found.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens = {});
  bool empty() const { return tokens_.empty(); }

  // Calls text(begin, end) for each non-empty text between tokens and token(id) for each token, in order. Unless
  // `special`, special tokens count as text.
  void each(std::string_view input, bool special, FunctionRef<void(size_t begin, size_t end)> text,
            FunctionRef<void(int32_t id)> token) const;

 private:
  // The longest token at input[at], or nullptr.
  const AddedToken* longest_at(std::string_view input, size_t at) const;

  std::vector<AddedToken> tokens_;                                  // by content
  std::array<std::pair<uint32_t, uint32_t>, 256> by_first_byte_{};  // ranges of tokens_
};

}  // namespace hone
