#pragma once
// Tokens that are recognised in text as a whole (special ones among them), before the words are cut: the `added_tokens`
// of a tokenizer.json.
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
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // ... after it
  bool normalized = false;   // looked for in normalised text
};

// Finds tokens in text: leftmost first, the longest where several begin. Matches do not overlap.
class AddedTokenMatcher {
 public:
  // Tokens with empty content are never found.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens = {});
  bool empty() const { return tokens_.empty(); }

  // Calls text(begin, end) for what lies between tokens (never empty) and token(id) in order. Without `special`,
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
