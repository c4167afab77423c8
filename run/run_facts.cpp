#include "run/run_facts.h"

#include <chrono>
#include <ctime>

#include "core/base/build_info.h"
#include "core/io/file.h"

namespace hone {
namespace {

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string shell_word(const std::string& word) {
  constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%[]";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// From /proc, which ends each word with a zero byte.
std::string command_line() {
  std::string words, out;
  try {
    words = read_file("/proc/self/cmdline");
  } catch (const Error&) {  // without /proc the report lacks its command
    return "";
  }
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find('\0', at), words.size());
    out += (out.empty() ? "" : " ") + shell_word(words.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

Json run_facts(const Device& device) {
  return JsonObject{{"started", utc_now()},
                    {"command", command_line()},
                    {"version", version_text()},
                    {"build", build_text()},
                    {"device", device.description()}};
}

}  // namespace hone
