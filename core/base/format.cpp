#include "core/base/format.h"

#include <cstdarg>
#include <cstdio>

namespace hone {

std::string format_text(const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start above
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string out(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(out.data(), out.size() + 1, format, again);
  va_end(again);
  return out;
}

std::string printable(std::string_view text) {
  constexpr unsigned char delete_character = 0x7f, c1_lead = 0xc2, c1_begin = 0x80, c1_end = 0xa0;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : static_cast<unsigned char>(0);
    if ((byte < ' ' && byte != '\n' && byte != '\t') || byte == delete_character) {
      out += format_text("\\x%02x", unsigned{byte});
    } else if (byte == c1_lead && next >= c1_begin && next < c1_end) {  // U+0080 to U+009F in UTF-8
      out += format_text("\\u%04x", unsigned{next});
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace hone
