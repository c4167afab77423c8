#include "eval/extraction.h"

#include <algorithm>

#include "core/base/check.h"
#include "rewards/answers/text.h"

namespace hone {

// A pattern's syntax error is one at the key that holds it.
static std::shared_ptr<const BoundedRegex> make_regex(Fields& f, const char* key, const std::string& pattern) {
  try {
    return std::make_shared<const BoundedRegex>(pattern);
  } catch (const Error& error) {
    f.require(key, false, error.what());
    throw;
  }
}

void AnswerFilter::fields(Fields& f) {
  f("name", name, "of the filter in metrics: exact_match,NAME");
  f("pattern", pattern,
    "regular expression of the answer; its first group that holds something, or all of it; empty = the whole reply");
  f("group_select", group_select, "which of the matches: 0 the first, -1 the last");
  f("fallback", fallback, "the answer where nothing matches");
  if (f.reading() && !pattern.empty()) regex = make_regex(f, "pattern", pattern);
}

std::string AnswerFilter::extract(std::string_view reply) const {
  if (!regex) return std::string(reply);
  std::vector<std::string_view> matches;
  const auto result = regex->each(reply, [&](std::span<const std::string_view> groups) {
    const auto candidates = groups.size() > 1 ? groups.subspan(1) : groups;
    const auto held =
        std::find_if(candidates.begin(), candidates.end(), [](std::string_view group) { return !group.empty(); });
    matches.push_back(held == candidates.end() ? std::string_view() : *held);
  });
  const int64_t count = static_cast<int64_t>(matches.size()),
                index = group_select < 0 ? count + group_select : group_select;
  if (result == BoundedRegex::Result::gave_up || index < 0 || index >= count) return fallback;
  return std::string(trimmed(matches[static_cast<size_t>(index)]));
}

void ExactMatch::fields(Fields& f) {
  f("ignore_case", ignore_case, "exact_match compares without case (ASCII)");
  f("ignore_punctuation", ignore_punctuation, "exact_match compares without ASCII punctuation");
  f("regexes_to_ignore", regexes_to_ignore, "exact_match compares without what these match, removed one after another");
  if (!f.reading()) return;
  ignored.clear();
  for (const std::string& pattern : regexes_to_ignore) ignored.push_back(make_regex(f, "regexes_to_ignore", pattern));
}

static bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

std::string ExactMatch::cleaned(std::string_view text) const {
  std::string out(text);
  for (const auto& regex : ignored) {
    std::string kept;
    size_t rest = 0;
    regex->each(out, [&](std::span<const std::string_view> groups) {
      if (groups[0].empty()) return;
      const auto begin = static_cast<size_t>(groups[0].data() - out.data());
      kept.append(out, rest, begin - rest);
      rest = begin + groups[0].size();
    });
    kept.append(out, rest);
    out = std::move(kept);
  }
  if (ignore_case) out = lower(out);
  if (ignore_punctuation) std::erase_if(out, is_punctuation);
  return out;
}

}  // namespace hone
