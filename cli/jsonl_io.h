#pragma once
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "core/file.h"
#include "core/json.h"

namespace hone {

// JSON Lines out: standard output for "" and "-", else a file.
class JsonlWriter {
 public:
  explicit JsonlWriter(const std::string& path) : path_(path) {
    if (path.empty() || path == "-") return;
    file_ = std::make_unique<std::ofstream>(expand_path(path), std::ios::binary);
    HONE_CHECK(file_->good(), path, ": cannot be written");
  }
  void write(const Json& row) {
    std::ostream& out = file_ ? *file_ : std::cout;
    out << row.dump() << '\n';
    HONE_CHECK(out.good(), path_.empty() ? "standard output" : path_, ": cannot be written (is the disk full?)");
  }
  void close() {
    (file_ ? static_cast<std::ostream&>(*file_) : std::cout).flush();
    HONE_CHECK(!file_ || file_->good(), path_, ": cannot be written (is the disk full?)");
  }

 private:
  std::string path_;
  std::unique_ptr<std::ofstream> file_;
};

// Ids of a JSON array, each checked to be in [0, vocab_size).
inline std::vector<int32_t> parse_ids(const Json& ids, int64_t vocab_size, const std::string& where) {
  std::vector<int32_t> out;
  for (const Json& id : ids.as_array(where)) {
    const int64_t value = id.as_int(where);
    HONE_CHECK(value >= 0 && value < vocab_size, where, ": id ", value, " is not in the model's vocabulary of ", vocab_size);
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

}  // namespace hone
