#include "rewards/instructions/words.h"

#include <array>
#include <span>
#include <string>

#include "core/text/unicode/bounded_regex.h"
#include "core/text/unicode/letter_case.h"
#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

BoundedRegex rule(std::string_view pattern) { return BoundedRegex(pattern, {.step_limit = 20'000'000}); }

// The rules of NLTK's word tokenizer (the Penn Treebank's) in their order, without those that split only characters
// without case off at a word's end: they cannot change the number of words in capitals. What a rule matches is a word
// of its own.
const std::array<BoundedRegex, 9>& rules() {
  static const std::array<BoundedRegex, 9> all{
      rule(R"(([«“‘„»”’"]|`+|''))"),
      rule(R"(([:,])(?=\D))"),
      rule(R"((\.{2,}|[;@#$%&?!*\x{2012}-\x{2015}]|[\]\[(){}<>]))"),
      rule(R"((--))"),
      rule(R"((?<=[^' ])('[sS]|'[mM]|'[dD]|')(?=\s|$))"),
      rule(R"((?<=[^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T)(?=\s|$))"),
      rule(R"((?i)\b(can)(?=not\b)|\b(gim)(?=me\b)|\b(gon)(?=na\b)|\b(got)(?=ta\b)|\b(lem)(?=me\b))"),
      rule(R"((?i)\b(d)(?='ye\b)|\b(more)(?='n\b)|\b(wan)(?=na\s))"),
      rule(R"((?i)(?<= )('t)(?=is\b|was\b))"),
  };
  return all;
}

std::string split(const BoundedRegex& by, const std::string& text) {
  std::string out;
  size_t rest = 0;
  by.each(text, [&](std::span<const std::string_view> groups) {
    const auto begin = static_cast<size_t>(groups[0].data() - text.data());
    out.append(text, rest, begin - rest).push_back(' ');
    out.append(groups[0]).push_back(' ');
    rest = begin + groups[0].size();
  });
  return out.append(text, rest);
}

}  // namespace

size_t count_words(std::string_view text) {
  size_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const bool is_part = c.value == U'_' || is_alphanumeric(c.value);
    count += is_part && !inside;
    inside = is_part;
    at += c.length;
  }
  return count;
}

size_t count_capital_words(std::string_view text) {
  std::string spaced = " " + std::string(text) + " ";
  for (const BoundedRegex& one : rules()) spaced = split(one, spaced);
  size_t count = 0, begin = 0;
  for (size_t at = 0; at < spaced.size();) {
    const CodePoint c = code_point_at(spaced, at);
    if (is_space(c.value)) {
      count += is_all_upper(std::string_view(spaced).substr(begin, at - begin));
      begin = at + c.length;
    }
    at += c.length;
  }
  return count;
}

}  // namespace hone
