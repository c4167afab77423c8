#include "core/base/check.h"
#include "core/io/page_style.h"

namespace hone {

std::string with_part(std::string page, std::string_view marker, std::string_view text) {
  const size_t at = page.find(marker);
  HONE_CHECK(at != std::string::npos && page.find(marker, at + 1) == std::string::npos, "page: the marker ", marker,
             " must be there once");
  return page.replace(at, marker.size(), text);
}

}  // namespace hone
