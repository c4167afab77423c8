#include "rewards/code/code_harness.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/text/unicode/unicode.h"

namespace hone {

// The embedded texts.
std::string_view code_values();
std::string_view code_worker();
std::string_view code_judge();

namespace {

void pack_size(size_t size, std::string& out) {
  HONE_CHECK(size <= UINT32_MAX, "a job for the judge has a value of ", size, " bytes or members");
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(size >> shift));
}

void pack_bits(uint64_t bits, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(bits >> shift));
}

// Packs text as UTF-8, which Python requires. An invalid byte becomes U+FFFD.
void pack_text(std::string_view text, std::string& out) {
  std::string valid;
  while (!text.empty()) {
    const size_t prefix = valid_utf8_prefix(text);
    valid += text.substr(0, prefix);
    text.remove_prefix(prefix);
    if (text.empty()) break;
    valid += "\xEF\xBF\xBD";
    text.remove_prefix(1);
  }
  out.push_back('s');
  pack_size(valid.size(), out);
  out += valid;
}

// Packs a value in the format of code_values.py.
void pack(const Json& value, std::string& out) {
  if (value.is_null()) {
    out.push_back('N');
  } else if (value.is_bool()) {
    out.push_back(value.as_bool() ? 'T' : 'F');
  } else if (value.is_int()) {
    out.push_back('i');
    pack_size(sizeof(int64_t), out);
    pack_bits(std::bit_cast<uint64_t>(value.as_int()), out);
  } else if (value.is_number()) {
    out.push_back('f');
    pack_bits(std::bit_cast<uint64_t>(value.as_double()), out);
  } else if (value.is_string()) {
    pack_text(value.as_string(), out);
  } else if (value.is_array()) {
    out.push_back('l');
    pack_size(value.as_array().size(), out);
    for (const Json& member : value.as_array()) pack(member, out);
  } else {
    out.push_back('d');
    pack_size(value.as_object().size(), out);
    for (const auto& [name, member] : value.as_object()) {
      pack_text(name, out);
      pack(member, out);
    }
  }
}

// Removes a number from the start of `text` and returns it.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return out;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

}  // namespace

std::string code_harness() { return concat(code_values(), code_worker(), code_judge()); }

std::string harness_job(const Json& job) {
  std::string out;
  pack(job, out);
  return out;
}

HarnessReport read_harness_report(std::string_view out, std::string_view nonce) {
  HarnessReport report;
  while (!out.empty()) {
    std::string_view line = out.substr(0, out.find('\n'));
    out.remove_prefix(std::min(line.size() + 1, out.size()));
    if (!take_word(line, nonce)) continue;
    if (take_word(line, " test ")) {
      report.test = take_number(line).value_or(report.test);
    } else if (take_word(line, " passed ")) {
      report.passed = take_number(line);
      report.note = line;
    } else if (take_word(line, " failed ")) {
      report.failure = line;
    }
  }
  return report;
}

}  // namespace hone
