#pragma once
// Tokens that are found in text before it is split into words, special tokens included: the `added_tokens` of a
// tokenizer.json.
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
  bool single_word = false;  // found only between characters that belong to no word
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // ... after it
  bool normalized = false;   // searched in normalized text
};

// Finds tokens in text: the leftmost first, the longest of several at one place. Matches do not overlap.
class AddedTokenMatcher {
 public:
  // Tokens with empty content are never found.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens = {});
  bool empty() const { return tokens_.empty(); }

  // Calls text(begin, end) for the text between tokens (never empty) and token(id), in order. If `special` is false,
  // special tokens are text.
  void each(std::string_view input, bool special, FunctionRef<void(size_t begin, size_t end)> text,
            FunctionRef<void(int32_t id)> token) const;

 private:
  // The longest token at input[at], or nullptr.
  const AddedToken* longest_at(std::string_view input, size_t at) const;

  std::vector<AddedToken> tokens_;                                  // by content
  std::array<std::pair<uint32_t, uint32_t>, 256> by_first_byte_{};  // ranges of tokens_
};

}  // namespace hone
