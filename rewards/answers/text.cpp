#include "rewards/answers/text.h"

#include <algorithm>

namespace hone {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), to_lower);
  return out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), to_upper);
  return out;
}

size_t rfind_ignoring_case(std::string_view text, std::string_view marker, size_t from) {
  if (marker.size() > text.size()) return std::string_view::npos;
  const char first = marker.empty() ? '\0' : marker[0];
  for (size_t at = std::min(from, text.size() - marker.size()) + 1; at-- > 0;) {
    if (to_lower(text[at]) != first) continue;
    size_t n = 1;
    while (n < marker.size() && to_lower(text[at + n]) == marker[n]) ++n;
    if (n >= marker.size()) return at;
  }
  return std::string_view::npos;
}

size_t end_of_last(std::string_view text, std::initializer_list<std::string_view> markers) {
  size_t end = std::string_view::npos;
  for (const std::string_view marker : markers) {
    const size_t at = rfind_ignoring_case(text, marker);
    if (at != std::string_view::npos && (end == std::string_view::npos || at + marker.size() > end))
      end = at + marker.size();
  }
  return end;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t end, at = 0; at < text.size(); at = end) {
    while (at < text.size() && is_space(text[at])) ++at;
    for (end = at; end < text.size() && !is_space(text[end]);) ++end;
    if (end > at) out.push_back(text.substr(at, end - at));
  }
  return out;
}

std::string excerpt(std::string_view text) {
  text = trimmed(text);
  if (text.size() <= 60) return std::string(text);
  size_t end = 57;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace hone
