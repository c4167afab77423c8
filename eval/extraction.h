#pragma once
// How an answer is read out of a reply and compared with the reference, as lm-evaluation-harness's regex filters and
// exact_match do, so that figures have the same names ("exact_match,strict-match") and mean the same.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/fields.h"
#include "core/text/unicode/bounded_regex.h"

namespace hone {

// Reads a reply's answer. With a pattern: the group_select-th of its matches (-1: the last), of which the first group
// that holds something (the whole where the pattern has no groups), without spaces at its ends; `fallback` where there
// is none, or where the search takes too long.
struct AnswerFilter {
  std::string name = "none", pattern, fallback = "[invalid]";
  int64_t group_select = 0;
  std::shared_ptr<const BoundedRegex> regex;  // made while fields() reads; none: the reply whole
  void fields(Fields& f);
  std::string extract(std::string_view reply) const;
  // False for the fallback.
  bool found(std::string_view answer) const { return answer != fallback; }
};

// Whether prediction and reference are the same once what the options name is taken out of both.
struct ExactMatch {
  bool ignore_case = false, ignore_punctuation = false;
  std::vector<std::string> regexes_to_ignore;
  std::vector<std::shared_ptr<const BoundedRegex>> ignored;  // made while fields() reads
  void fields(Fields& f);
  std::string cleaned(std::string_view text) const;
  bool operator()(std::string_view prediction, std::string_view reference) const {
    return cleaned(prediction) == cleaned(reference);
  }
};

}  // namespace hone
