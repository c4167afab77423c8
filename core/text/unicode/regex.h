#pragma once
// Regular expressions over UTF-8 text (PCRE2, just-in-time compiled), in the dialect that tokenizer.json files use:
// Unicode classes, ^ and $ at lines, \s as White_Space. Immutable; safe from any thread. regex.cpp alone includes
// PCRE2.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/function_ref.h"

namespace hone {

class Regex {
 public:
  // `source` names the pattern in errors: a syntax error says at which character.
  Regex(std::string_view pattern, std::string_view source);
  // Matches exactly these bytes.
  static Regex literal(std::string_view text, std::string_view source);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Calls match(begin, end) for every match, left to right, none overlapping; a match may be empty. Invalid bytes count
  // as U+FFFD each. A pattern that would take exponential time is an Error.
  void each(std::string_view text, FunctionRef<void(size_t begin, size_t end)> match) const;
  bool matches_within(std::string_view text) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace hone
