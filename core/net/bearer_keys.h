#pragma once
// ApiKeys: the keys of a server, checked against "Authorization: Bearer KEY".
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/net/digest.h"

namespace hone {

// Reads one key per line; skips empty lines and lines that begin with #. Throws if the file has no key, or a key has a
// space.
std::vector<std::string> read_keys(const std::filesystem::path& file);

class ApiKeys {
 public:
  // The keys of read_keys().
  static ApiKeys load(const std::filesystem::path& file);
  // The same; nullopt if `file` is "".
  static std::optional<ApiKeys> of(const std::string& file) {
    if (file.empty()) return std::nullopt;
    return load(file);
  }
  void add(std::string_view key);
  // Checks the header's value. Runs in time that does not depend on the keys: it compares every byte of every digest.
  bool accepts(std::string_view authorization) const;

 private:
  std::vector<Digest> keys_;
};

}  // namespace hone
