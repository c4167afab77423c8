#pragma once
// Regular expressions for untrusted patterns and texts: PCRE2 syntax over UTF-8, with a search that always ends. Bytes
// that are not UTF-8 never match. core/text/unicode/regex.h is the faster class for tokenizer patterns.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/function_ref.h"

namespace hone {

struct BoundedRegexOptions {
  bool dot_all = false;  // '.' matches newlines
  uint64_t step_limit = 1'000'000;
};

// Immutable. Any thread may use it.
class BoundedRegex {
 public:
  enum class Result : uint8_t { found, not_found, gave_up };

  // Compiles the pattern. An Error shows the pattern, the position and the cause.
  explicit BoundedRegex(std::string_view pattern, const BoundedRegexOptions& options = {});
  ~BoundedRegex();
  BoundedRegex(BoundedRegex&&) noexcept;
  BoundedRegex& operator=(BoundedRegex&&) noexcept;

  // Searches for the first match. gave_up: the search tried step_limit items of the pattern, backtracking included. A
  // repetition of one character is one step for any number of characters, so the caller must bound the text's length
  // too.
  Result search(std::string_view text) const;

  // Calls match(groups) for each match, left to right, without overlap; empty matches follow Python's re.findall.
  // groups[0] is the entire match, the others are the pattern's groups; a group that did not match is empty. step_limit
  // counts for all matches together.
  Result each(std::string_view text, FunctionRef<void(std::span<const std::string_view> groups)> match) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace hone
