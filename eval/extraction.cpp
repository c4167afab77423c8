#include "eval/extraction.h"

#include <algorithm>

#include "core/base/check.h"
#include "rewards/answers/text.h"

namespace hone {

// A syntax error of the pattern is reported at its key.
static void require_regex(Fields& f, const char* key, const std::string& pattern) {
  std::string problem;
  try {
    const BoundedRegex regex(pattern);
  } catch (const Error& error) {  // gets the place of the key
    problem = error.what();
  }
  f.require(key, problem.empty(), problem);
}

void AnswerFilter::fields(Fields& f) {
  f("name", name, "name of the filter in metrics: exact_match,NAME");
  f("pattern", pattern,
    "regular expression: the answer is its first nonempty group, or the whole match; empty = the whole completion");
  f("group_select", group_select, "number of the match to use: 0 = the first, -1 = the last");
  f("fallback", fallback, "answer if nothing matches");
  require_regex(f, "pattern", pattern);
}

void AnswerFilter::prepare() { regex = pattern.empty() ? nullptr : std::make_shared<const BoundedRegex>(pattern); }

std::string AnswerFilter::extract(std::string_view completion) const {
  if (!regex) return std::string(completion);
  std::vector<std::string_view> matches;
  const auto result = regex->each(completion, [&](std::span<const std::string_view> groups) {
    const auto candidates = groups.size() > 1 ? groups.subspan(1) : groups;
    const auto group =
        std::find_if(candidates.begin(), candidates.end(), [](std::string_view text) { return !text.empty(); });
    matches.push_back(group == candidates.end() ? std::string_view() : *group);
  });
  const int64_t count = static_cast<int64_t>(matches.size()),
                index = group_select < 0 ? count + group_select : group_select;
  if (result == BoundedRegex::Result::gave_up || index < 0 || index >= count) return fallback;
  return std::string(trimmed(matches[static_cast<size_t>(index)]));
}

void ExactMatch::fields(Fields& f) {
  f("ignore_case", ignore_case, "exact_match ignores case (ASCII)");
  f("ignore_punctuation", ignore_punctuation, "exact_match ignores ASCII punctuation");
  f("regexes_to_ignore", regexes_to_ignore,
    "regular expressions whose matches exact_match removes before it compares; empty = none");
  for (const std::string& pattern : regexes_to_ignore) require_regex(f, "regexes_to_ignore", pattern);
}

void ExactMatch::prepare() {
  ignored_regexes.clear();
  for (const std::string& pattern : regexes_to_ignore)
    ignored_regexes.push_back(std::make_shared<const BoundedRegex>(pattern));
}

static bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

std::string ExactMatch::cleaned(std::string_view text) const {
  std::string out(text);
  for (const auto& regex : ignored_regexes) {
    std::string remaining;
    size_t rest = 0;
    regex->each(out, [&](std::span<const std::string_view> groups) {
      if (groups[0].empty()) return;
      const auto begin = static_cast<size_t>(groups[0].data() - out.data());
      remaining.append(out, rest, begin - rest);
      rest = begin + groups[0].size();
    });
    remaining.append(out, rest);
    out = std::move(remaining);
  }
  if (ignore_case) out = lower(out);
  if (ignore_punctuation) std::erase_if(out, is_punctuation);
  return out;
}

}  // namespace hone
