#include "core/text/unicode/letter_case.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

struct CharacterRange {
  char32_t first, last;
};

// Other_Uppercase and Other_Lowercase of Unicode's PropList.txt: characters with case that are no letters.
constexpr std::array other_uppercase{CharacterRange{0x2160, 0x216F}, CharacterRange{0x24B6, 0x24CF},
                                     CharacterRange{0x1F130, 0x1F149}, CharacterRange{0x1F150, 0x1F169},
                                     CharacterRange{0x1F170, 0x1F189}};
constexpr std::array other_lowercase{
    CharacterRange{0xAA, 0xAA},     CharacterRange{0xBA, 0xBA},     CharacterRange{0x2B0, 0x2B8},
    CharacterRange{0x2C0, 0x2C1},   CharacterRange{0x2E0, 0x2E4},   CharacterRange{0x345, 0x345},
    CharacterRange{0x37A, 0x37A},   CharacterRange{0x1D2C, 0x1D6A}, CharacterRange{0x1D78, 0x1D78},
    CharacterRange{0x1D9B, 0x1DBF}, CharacterRange{0x2071, 0x2071}, CharacterRange{0x207F, 0x207F},
    CharacterRange{0x2090, 0x209C}, CharacterRange{0x2170, 0x217F}, CharacterRange{0x24D0, 0x24E9},
    CharacterRange{0x2C7C, 0x2C7D}, CharacterRange{0xA69C, 0xA69D}, CharacterRange{0xA770, 0xA770},
    CharacterRange{0xA7F8, 0xA7F9}, CharacterRange{0xAB5C, 0xAB5F}};

bool is_in(const auto& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const CharacterRange& range) { return c >= range.first && c <= range.last; });
}

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
bool is_title(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// Unicode's Final_Sigma, with apostrophes, dots and marks as the characters that it ignores.
bool is_case_ignorable(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return c == '\'' || c == '.' || c == ':' || c == 0xAD || c == 0xB7 || c == 0x2019 ||
         category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF;
}

bool ends_word(std::string_view text, size_t at, size_t length) {
  size_t before = at;
  while (before > 0) {
    before = code_point_before(text, before);
    if (!is_case_ignorable(code_point_at(text, before).value)) break;
  }
  if (before == at || !is_cased(code_point_at(text, before).value)) return false;
  for (size_t after = at + length; after < text.size();) {
    const CodePoint c = code_point_at(text, after);
    if (!is_case_ignorable(c.value)) return !is_cased(c.value);
    after += c.length;
  }
  return true;
}

template <class IsWanted, class IsOther>
bool is_all(std::string_view text, IsWanted is_wanted, IsOther is_other) {
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (is_other(c.value) || is_title(c.value)) return false;
    found = found || is_wanted(c.value);
    at += c.length;
  }
  return found;
}

}  // namespace

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category_of(c) == UTF8PROC_CATEGORY_LU || is_in(other_uppercase, c);
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return category_of(c) == UTF8PROC_CATEGORY_LL || is_in(other_lowercase, c);
}

bool is_alphanumeric(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

std::string lower_case(std::string_view text) {
  constexpr char32_t capital_sigma = 0x3A3, final_sigma = 0x3C2, dotted_capital_i = 0x130, dot_above = 0x307;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!c.valid) {
      out.push_back(text[at]);
    } else if (c.value == capital_sigma && ends_word(text, at, c.length)) {
      append_utf8(out, final_sigma);
    } else if (c.value == dotted_capital_i) {
      out.push_back('i');
      append_utf8(out, dot_above);
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))));
    }
    at += c.length;
  }
  return out;
}

bool is_all_upper(std::string_view text) { return is_all(text, is_upper, is_lower); }
bool is_all_lower(std::string_view text) { return is_all(text, is_lower, is_upper); }

}  // namespace hone
