#include "core/config/byte_size.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/base/format.h"

namespace hone {
namespace {

struct Unit {
  std::string_view name;  // in lower case
  double bytes;
};
constexpr std::array units = std::to_array<Unit>({{"", 1},
                                                  {"b", 1},
                                                  {"kb", 1e3},
                                                  {"mb", 1e6},
                                                  {"gb", 1e9},
                                                  {"tb", 1e12},
                                                  {"kib", 0x1p10},
                                                  {"mib", 0x1p20},
                                                  {"gib", 0x1p30},
                                                  {"tib", 0x1p40}});

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::optional<int64_t> read_byte_size(std::string_view text) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [read, problem] = std::from_chars(text.data(), text.data() + end, number);
  if (problem != std::errc{} || read != text.data() + end) return std::nullopt;
  std::string unit(text.substr(std::min(text.find_first_not_of(' ', end), text.size())));
  std::ranges::transform(unit, unit.begin(), lower);
  const auto* known = std::ranges::find(units, std::string_view(unit), &Unit::name);
  if (known == units.end()) return std::nullopt;
  const double bytes = number * known->bytes;
  const bool fraction_of_a_byte = known->bytes == 1 && bytes != std::floor(bytes);
  if (!(bytes >= 1) || bytes >= 0x1p62 || fraction_of_a_byte) return std::nullopt;
  return static_cast<int64_t>(std::round(bytes));
}

std::string byte_size_text(int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (std::abs(size) >= 1e9) return format_text("%.2f GB", size * 1e-9);
  if (std::abs(size) >= 1e6) return format_text("%.1f MB", size * 1e-6);
  return std::abs(size) >= 1e4 ? format_text("%.1f kB", size * 1e-3) : format_text("%.0f bytes", size);
}

}  // namespace hone
