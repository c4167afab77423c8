// Values as JSON: numbers, texts, ISO 8601 dates, decimals as text.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/format.h"
#include "core/io/parquet/values.h"
#include "core/io/utf8.h"

namespace hone::parquet {
namespace {

// A number with its sign in two's complement, the most significant byte first, as decimal digits with a point.
std::string decimal_of_bytes(std::string_view bytes, int32_t scale) {
  HONE_CHECK(!bytes.empty() && bytes.size() <= 256, "a decimal of ", bytes.size(), " bytes");
  std::string magnitude(bytes);
  const bool negative = (static_cast<uint8_t>(bytes.front()) & 0x80) != 0;
  if (negative) {
    int carry = 1;
    for (size_t i = magnitude.size(); i-- > 0;) {
      const int byte = (~static_cast<uint8_t>(magnitude[i]) & 0xFF) + carry;
      magnitude[i] = static_cast<char>(byte & 0xFF);
      carry = byte >> 8;
    }
  }
  std::string digits;  // the least significant first
  for (bool rest = true; rest;) {
    int remainder = 0;
    rest = false;
    for (char& c : magnitude) {
      const int value = remainder * 256 + static_cast<uint8_t>(c);
      c = static_cast<char>(value / 10);
      remainder = value % 10;
      rest = rest || c != 0;
    }
    digits += static_cast<char>('0' + remainder);
  }
  while (digits.size() <= static_cast<size_t>(scale)) digits += '0';
  if (scale > 0) digits.insert(static_cast<size_t>(scale), ".");
  if (negative) digits += '-';
  return {digits.rbegin(), digits.rend()};
}

std::string decimal_of_integer(int64_t value, int32_t scale) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * (7 - i)));
  return decimal_of_bytes(bytes, scale);
}

// Division that rounds down, for b above 0.
int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
int64_t floor_mod(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

// The date of a day since 1970-01-01 (Hinnant, "chrono-compatible low-level date algorithms").
std::string date_text(int64_t day) {
  HONE_CHECK(day > -1000000000000 && day < 1000000000000, "a date of ", day, " days");
  const int64_t shifted = day + 719468, era = floor_div(shifted, 146097);
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t shifted_month = (5 * day_of_year + 2) / 153;
  const int64_t month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
  const int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
  const int64_t day_of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;
  return format_text("%04" PRId64 "-%02" PRId64 "-%02" PRId64, year, month, day_of_month);
}

struct UnitInfo {
  int64_t per_second;
  int digits;
};

UnitInfo info_of(TimeUnit unit) {
  if (unit == TimeUnit::milliseconds) return {1000, 3};
  if (unit == TimeUnit::microseconds) return {1000000, 6};
  return {1000000000, 9};
}

// "12:34:56.789"; `time` is above 0 and below a day.
std::string time_text(int64_t time, TimeUnit unit) {
  const UnitInfo info = info_of(unit);
  const int64_t second = time / info.per_second;
  return format_text("%02lld:%02lld:%02lld.%0*lld", static_cast<long long>(second / 3600),
                     static_cast<long long>(second / 60 % 60), static_cast<long long>(second % 60), info.digits,
                     static_cast<long long>(time % info.per_second));
}

std::string timestamp_text(int64_t time, TimeUnit unit, bool utc) {
  const int64_t per_day = info_of(unit).per_second * 86400;
  return date_text(floor_div(time, per_day)) + "T" + time_text(floor_mod(time, per_day), unit) + (utc ? "Z" : "");
}

// Nanoseconds of the day, then the Julian day.
std::string int96_text(std::string_view bytes) {
  int64_t nanoseconds = 0;
  int32_t julian_day = 0;
  std::memcpy(&nanoseconds, bytes.data(), 8);
  std::memcpy(&julian_day, bytes.data() + 8, 4);
  constexpr int64_t per_day = int64_t{86400} * 1000000000;
  return date_text(int64_t{julian_day} - 2440588 + floor_div(nanoseconds, per_day)) + "T" +
         time_text(floor_mod(nanoseconds, per_day), TimeUnit::nanoseconds);
}

double float16(std::string_view bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data(), 2);
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

std::string base64_text(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= count ? digits[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string uuid_text(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += digits[static_cast<uint8_t>(bytes[i]) >> 4];
    out += digits[bytes[i] & 15];
  }
  return out;
}

bool is_printable(std::string_view text) {
  for (const char c : text)
    if (static_cast<uint8_t>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r') return false;
  return is_utf8(text);
}

Json of_bytes(const Leaf& leaf, std::string_view bytes) {
  switch (leaf.annotation.meaning) {
    case Meaning::decimal:
      return decimal_of_bytes(bytes, leaf.annotation.scale);
    case Meaning::float16:
      if (bytes.size() == 2) return float16(bytes);
      break;
    case Meaning::uuid:
      if (bytes.size() == 16) return uuid_text(bytes);
      break;
    case Meaning::string:
    case Meaning::json:
    case Meaning::enumeration:
      HONE_CHECK(is_utf8(bytes), "column ", leaf.path, " has a text that is not UTF-8");
      return bytes;
    default:
      break;
  }
  // Older writers do not mark texts.
  if (is_printable(bytes)) return bytes;
  return JsonObject{{"$b64", base64_text(bytes)}};
}

Json of_integer(const Leaf& leaf, int64_t value) {
  const Annotation& annotation = leaf.annotation;
  switch (annotation.meaning) {
    case Meaning::decimal:
      return decimal_of_integer(value, annotation.scale);
    case Meaning::date:
      return date_text(value);
    case Meaning::timestamp:
      return timestamp_text(value, annotation.unit, annotation.utc);
    case Meaning::time: {
      const int64_t per_day = info_of(annotation.unit).per_second * 86400;
      HONE_CHECK(value >= 0 && value < per_day, "column ", leaf.path, " has ", value, " as a time of the day");
      return time_text(value, annotation.unit);
    }
    case Meaning::unsigned_integer:
      if (leaf.type == PhysicalType::int32) return static_cast<int64_t>(static_cast<uint32_t>(value));
      if (value < 0) return static_cast<double>(static_cast<uint64_t>(value));
      return value;
    default:
      return value;
  }
}

}  // namespace

Json to_json(const Leaf& leaf, const StoredValue& value) {
  switch (leaf.type) {
    case PhysicalType::boolean:
      return value.integer != 0;
    case PhysicalType::int32:
    case PhysicalType::int64:
      return of_integer(leaf, value.integer);
    case PhysicalType::float32:
    case PhysicalType::float64:
      return value.real;
    case PhysicalType::int96:
      return int96_text(value.bytes);
    default:
      return of_bytes(leaf, value.bytes);
  }
}

}  // namespace hone::parquet
