#pragma once
// Regular expressions over UTF-8 text (PCRE2, JIT-compiled) in the dialect of tokenizer.json files: Unicode classes, ^
// and $ at lines, \s as White_Space. Immutable; any thread may use it. Only regex.cpp includes PCRE2.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/function_ref.h"

namespace hone {

class Regex {
 public:
  // `source` names the pattern in errors. An Error of the syntax names the character.
  Regex(std::string_view pattern, std::string_view source);
  // A regex that matches exactly these bytes.
  static Regex literal(std::string_view text, std::string_view source);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Calls match(begin, end) for each match, left to right, without overlap. A match may be empty. Each invalid byte
  // counts as U+FFFD. Throws an Error if matching would take exponential time.
  void each(std::string_view text, FunctionRef<void(size_t begin, size_t end)> match) const;
  bool matches_within(std::string_view text) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace hone
