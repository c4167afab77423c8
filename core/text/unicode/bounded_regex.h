#pragma once
// Regular expressions over text that nobody vouches for: PCRE2 syntax over UTF-8 (bytes that are not UTF-8 match
// nothing and do no harm), a search that always ends. core/text/unicode/regex.h is the faster one for tokenizer
// patterns.
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

// Immutable; safe from any thread.
class BoundedRegex {
 public:
  enum class Result : uint8_t { found, not_found, gave_up };

  // An Error shows the pattern, the place and what is wrong there.
  explicit BoundedRegex(std::string_view pattern, const BoundedRegexOptions& options = {});
  ~BoundedRegex();
  BoundedRegex(BoundedRegex&&) noexcept;
  BoundedRegex& operator=(BoundedRegex&&) noexcept;

  // Whether the pattern matches somewhere. gave_up: step_limit items of the pattern were tried, backtracking included.
  // The repetition of one character is one step however far it reaches, so the text's length needs a bound of its own.
  Result search(std::string_view text) const;

  // Calls match(groups) for each match, left to right, none overlapping, empty ones as Python's re.findall gives them:
  // groups[0] is the whole match, the others what the pattern's groups hold, empty where one took no part. gave_up:
  // step_limit is that of all matches together.
  Result each(std::string_view text, FunctionRef<void(std::span<const std::string_view> groups)> match) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace hone
