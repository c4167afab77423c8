#include "core/net/bearer_keys.h"

#include <openssl/crypto.h>

#include <sstream>
#include <string>

#include "core/base/check.h"
#include "core/io/file.h"

namespace hone {

std::vector<std::string> read_keys(const std::filesystem::path& file) {
  std::istringstream lines(read_file(file, 1 << 20));
  std::vector<std::string> out;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    HONE_CHECK(line.find_first_of(" \t") == std::string::npos, file.string(), ":", number,
               ": a key must not contain spaces");
    out.push_back(line);
  }
  HONE_CHECK(!out.empty(), file.string(), ": the file has no key; write one key per line");
  return out;
}

ApiKeys ApiKeys::load(const std::filesystem::path& file) {
  ApiKeys out;
  for (const std::string& key : read_keys(file)) out.add(key);
  return out;
}

void ApiKeys::add(std::string_view key) { keys_.push_back(sha256(key)); }

bool ApiKeys::accepts(std::string_view authorization) const {
  constexpr std::string_view scheme = "bearer ";
  if (authorization.size() < scheme.size()) return false;
  for (size_t i = 0; i < scheme.size(); ++i)
    if ((authorization[i] | 0x20) != (scheme[i] | 0x20)) return false;
  const Digest given = sha256(authorization.substr(scheme.size()));
  bool found = false;
  for (const Digest& key : keys_) found |= CRYPTO_memcmp(key.data(), given.data(), key.size()) == 0;
  return found;
}

}  // namespace hone
