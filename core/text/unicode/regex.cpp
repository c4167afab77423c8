#include "core/text/unicode/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/base/this_threads.h"
#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// The match state of a thread. Only the ends of the entire match are read.
struct Matcher {
  Owned<pcre2_match_data> data{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack> stack{pcre2_jit_stack_create(size_t{32} << 10, size_t{4} << 20, nullptr)};
  Matcher() {
    HONE_CHECK(data && context && stack, "out of memory for regular expressions");
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

// Adapts PCRE2's syntax. PCRE2 counts U+180E as \s, unlike Unicode since 6.3, Oniguruma and Rust. Ruby's \h and && have
// another meaning than PCRE2's.
std::string translate(std::string_view pattern, std::string_view source) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      HONE_CHECK(next != 'h' && next != 'H', source, ": the class \\", next, " of '", pattern, "' is not supported");
      if (next == 's')
        out += in_class ? "\\t-\\r\\x{85}\\p{Z}" : "[\\t-\\r\\x{85}\\p{Z}]";
      else if (next == 'S' && !in_class)
        out += "[^\\t-\\r\\x{85}\\p{Z}]";
      else
        out.append({c, next});
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += "\\]", ++i;
      continue;
    }
    if (c == '[' && pattern.substr(i, 2) == "[:") {
      const size_t end = pattern.find(":]", i);
      HONE_CHECK(end != std::string_view::npos, source, ": unfinished [: in '", pattern, "'");
      out += pattern.substr(i, end + 2 - i);
      i = end + 1;
      continue;
    }
    HONE_CHECK(!in_class || (c != '[' && pattern.substr(i, 2) != "&&"), source, ": nested classes in '", pattern,
               "' are not supported");
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

// The text with U+FFFD for each invalid byte, and the original position of each of its bytes.
struct Repaired {
  std::string text;
  std::vector<size_t> original;
  explicit Repaired(std::string_view from) {
    for (size_t at = 0; at < from.size();) {
      const CodePoint c = code_point_at(from, at);
      const size_t before = text.size();
      append_utf8(text, c.value);
      for (size_t i = before; i < text.size(); ++i) original.push_back(at);
      at += c.length;
    }
    original.push_back(from.size());
  }
};

}  // namespace

struct Regex::Impl {
  std::string literal;  // if not empty, `code` is null
  Owned<pcre2_code> code;
  std::string source, pattern;

  void each_valid(std::string_view text, FunctionRef<void(size_t, size_t)> match) const {
    // The results are read before the callback, which may use another Regex on this thread.
    Matcher& matcher = this_threads<Matcher>();
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (size_t at = 0; at <= text.size();) {
      const int found = pcre2_match(code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, matcher.data.get(),
                                    matcher.context.get());
      if (found == PCRE2_ERROR_NOMATCH) return;
      if (found < 0) {
        PCRE2_UCHAR words[128] = {};
        pcre2_get_error_message(found, words, sizeof words);
        fail(source, ": matching '", pattern, "' failed at byte ", at,
             " of the text: ", reinterpret_cast<const char*>(words));
      }
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(matcher.data.get());
      const size_t end = std::max<size_t>(ends[1], at),
                   begin = std::clamp<size_t>(ends[0], at, end);  // \K may move the ends
      match(begin, end);
      at = end;
      if (begin == end) at += at < text.size() ? code_point_at(text, at).length : 1;
    }
  }
};

Regex::Regex(std::string_view pattern, std::string_view source) {
  auto impl = std::make_unique<Impl>();
  impl->source = source;
  impl->pattern = pattern;
  HONE_CHECK(pattern.size() <= 65536, source, ": the pattern has ", pattern.size(),
             " bytes; at most 65536 are allowed");
  HONE_CHECK(valid_utf8_prefix(pattern) == pattern.size(), source, ": the pattern is not valid UTF-8");
  const std::string translated = translate(pattern, source);
  int error = 0;
  PCRE2_SIZE where = 0;
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &where, nullptr));
  if (!impl->code) {
    PCRE2_UCHAR words[128] = {};
    pcre2_get_error_message(error, words, sizeof words);
    fail(source, ": pattern '", pattern, "', near character ", where, ": ", reinterpret_cast<const char*>(words));
  }
  pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);  // without a JIT the interpreter matches
  impl_ = std::move(impl);
}

Regex Regex::literal(std::string_view text, std::string_view source) {
  HONE_CHECK(!text.empty(), source, ": the pattern is empty");
  auto impl = std::make_unique<Impl>();
  impl->literal = impl->pattern = text;
  impl->source = source;
  return Regex(std::move(impl));
}

Regex::Regex(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::each(std::string_view text, FunctionRef<void(size_t, size_t)> match) const {
  if (!impl_->literal.empty()) {
    const std::string& wanted = impl_->literal;
    for (size_t at = text.find(wanted); at != std::string_view::npos; at = text.find(wanted, at + wanted.size()))
      match(at, at + wanted.size());
    return;
  }
  if (valid_utf8_prefix(text) == text.size()) return impl_->each_valid(text, match);
  const Repaired repaired(text);
  impl_->each_valid(repaired.text,
                    [&](size_t begin, size_t end) { match(repaired.original[begin], repaired.original[end]); });
}

bool Regex::matches_within(std::string_view text) const {
  bool found = false;
  each(text, [&](size_t, size_t) { found = true; });
  return found;
}

}  // namespace hone
