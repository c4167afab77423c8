#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/text/unicode/bounded_regex.h"

#include <pcre2.h>

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/text/unicode/unicode.h"

namespace hone {

namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;

// PCRE2's own match limit restarts at every position of the text. So the search counts the callouts that
// PCRE2_AUTO_CALLOUT puts before each item.
int count_step(pcre2_callout_block*, void* steps_left) {
  uint64_t& left = *static_cast<uint64_t*>(steps_left);
  return left-- == 0 ? PCRE2_ERROR_CALLOUT : 0;
}

std::string error_text(int code) {
  unsigned char words[256];
  pcre2_get_error_message(code, words, sizeof words);
  return reinterpret_cast<const char*>(words);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct BoundedRegex::Impl {
  Code any_code;    // for any text; each match checks the rest of the text
  Code valid_code;  // for text that is known to be valid UTF-8
  uint64_t step_limit = 0;

  int match(const Code& pattern, std::string_view text, size_t begin, uint32_t flags, const MatchData& data,
            uint64_t& steps_left) const {
    const MatchContext context(pcre2_match_context_create(nullptr));
    HONE_CHECK(data && context, "pattern: out of memory");
    pcre2_set_callout(context.get(), count_step, &steps_left);
    return pcre2_match(pattern.get(), text.empty() ? units("") : units(text), text.size(), begin, flags, data.get(),
                       context.get());
  }
};

BoundedRegex::BoundedRegex(std::string_view pattern, const BoundedRegexOptions& options) {
  const uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_AUTO_CALLOUT | (options.dot_all ? PCRE2_DOTALL : 0);
  const auto compile = [&](uint32_t more_flags) {
    int code = 0;
    size_t place = 0;
    Code compiled(pcre2_compile(units(pattern), pattern.size(), flags | more_flags, &code, &place, nullptr));
    HONE_CHECK(compiled, "pattern '", pattern, "': at character ", place + 1, ": ", error_text(code));
    return compiled;
  };
  impl_.reset(new Impl{compile(PCRE2_MATCH_INVALID_UTF), compile(0), options.step_limit});
}

BoundedRegex::~BoundedRegex() = default;
BoundedRegex::BoundedRegex(BoundedRegex&&) noexcept = default;
BoundedRegex& BoundedRegex::operator=(BoundedRegex&&) noexcept = default;

BoundedRegex::Result BoundedRegex::search(std::string_view text) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  uint64_t steps_left = impl_->step_limit;
  const int found = impl_->match(impl_->any_code, text, 0, 0, data, steps_left);
  return found >= 0 ? Result::found : found == PCRE2_ERROR_NOMATCH ? Result::not_found : Result::gave_up;
}

BoundedRegex::Result BoundedRegex::each(std::string_view text,
                                        FunctionRef<void(std::span<const std::string_view>)> match) const {
  const MatchData data(pcre2_match_data_create_from_pattern(impl_->any_code.get(), nullptr));
  uint64_t steps_left = impl_->step_limit;
  Result result = Result::not_found;
  std::vector<std::string_view> groups;
  const bool valid = valid_utf8_prefix(text) == text.size();
  const Code& code = valid ? impl_->valid_code : impl_->any_code;
  const uint32_t unchecked = valid ? PCRE2_NO_UTF_CHECK : 0;
  uint32_t flags = unchecked;
  for (size_t at = 0; at <= text.size();) {
    const int found = impl_->match(code, text, at, flags, data, steps_left);
    if (found < 0) return found == PCRE2_ERROR_NOMATCH ? result : Result::gave_up;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    groups.assign(pcre2_get_ovector_count(data.get()), {});
    for (size_t g = 0; g < groups.size(); ++g)
      if (ends[2 * g] != PCRE2_UNSET && ends[2 * g] < ends[2 * g + 1])
        groups[g] = text.substr(ends[2 * g], ends[2 * g + 1] - ends[2 * g]);
    match(groups);
    result = Result::found;
    const bool empty = ends[1] <= std::max<size_t>(ends[0], at);  // \K and lookbehind may move the ends
    at = std::max<size_t>(ends[1], at);
    flags = unchecked | (empty ? PCRE2_NOTEMPTY_ATSTART : 0);
  }
  return result;
}

}  // namespace hone
