#pragma once
// ApiKeys: who may use a server ("Authorization: Bearer KEY").
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/net/digest.h"

namespace hone {

// One key a line; empty lines and those that begin with # are skipped. A file without a key, or a key with a space in
// it, is an Error.
std::vector<std::string> read_keys(const std::filesystem::path& file);

class ApiKeys {
 public:
  // Those of read_keys().
  static ApiKeys load(const std::filesystem::path& file);
  // The same; none where no file is named.
  static std::optional<ApiKeys> of(const std::string& file) {
    if (file.empty()) return std::nullopt;
    return load(file);
  }
  void add(std::string_view key);
  // Of the header's value. How long it takes tells nothing of the keys: digests of one length are compared, every byte
  // of every one.
  bool accepts(std::string_view authorization) const;

 private:
  std::vector<Digest> keys_;
};

}  // namespace hone
