#pragma once
// Extracts an answer from a completion and compares it with the reference, as lm-evaluation-harness's regex filters and
// exact_match do: metrics have the same names ("exact_match,strict-match") and the same meaning.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/fields.h"
#include "core/text/unicode/bounded_regex.h"

namespace hone {

// Extracts the answer of a completion. With a pattern it takes match number group_select (-1: the last), of that the
// first nonempty group (the whole match if the pattern has no groups), and trims it. Returns `fallback` if there is no
// such match or the search takes too long.
struct AnswerFilter {
  std::string name = "none", pattern, fallback = "[invalid]";
  int64_t group_select = 0;
  std::shared_ptr<const BoundedRegex> regex;  // null: the answer is the whole completion
  void fields(Fields& f);
  void prepare();  // compiles the pattern; call it after the fields are read
  std::string extract(std::string_view completion) const;
  // False if `answer` is the fallback.
  bool found(std::string_view answer) const { return answer != fallback; }
};

// Compares prediction and reference after removing from both what the options say.
struct ExactMatch {
  bool ignore_case = false, ignore_punctuation = false;
  std::vector<std::string> regexes_to_ignore;
  std::vector<std::shared_ptr<const BoundedRegex>> ignored_regexes;
  void fields(Fields& f);
  void prepare();  // compiles regexes_to_ignore; call it after the fields are read
  std::string cleaned(std::string_view text) const;
  bool operator()(std::string_view prediction, std::string_view reference) const {
    return cleaned(prediction) == cleaned(reference);
  }
};

}  // namespace hone
