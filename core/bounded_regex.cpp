#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/bounded_regex.h"

#include <pcre2.h>

#include "core/check.h"

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

// PCRE2's own match limit starts afresh at every position of the text, so a search is bounded by counting the callouts that
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
  Code code;
  uint64_t step_limit = 0;
};

BoundedRegex::BoundedRegex(std::string_view pattern, const BoundedRegexOptions& options) {
  const uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_AUTO_CALLOUT | (options.dot_all ? PCRE2_DOTALL : 0);
  int code = 0;
  size_t place = 0;
  Code compiled(pcre2_compile(units(pattern), pattern.size(), flags, &code, &place, nullptr));
  HONE_CHECK(compiled, "pattern '", pattern, "': at character ", place + 1, ": ", error_text(code));
  impl_.reset(new Impl{std::move(compiled), options.step_limit});
}

BoundedRegex::~BoundedRegex() = default;
BoundedRegex::BoundedRegex(BoundedRegex&&) noexcept = default;
BoundedRegex& BoundedRegex::operator=(BoundedRegex&&) noexcept = default;

BoundedRegex::Result BoundedRegex::search(std::string_view text) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  HONE_CHECK(data && context, "pattern: out of memory");
  uint64_t steps_left = impl_->step_limit;
  pcre2_set_callout(context.get(), count_step, &steps_left);
  const int found = pcre2_match(impl_->code.get(), text.empty() ? units("") : units(text), text.size(), 0, 0, data.get(), context.get());
  return found >= 0 ? Result::found : found == PCRE2_ERROR_NOMATCH ? Result::not_found : Result::gave_up;
}

}  // namespace hone
