#include "core/io/rows/rows.h"

#include "core/io/file.h"
#include "core/io/rows/dataset_folder.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code unknown;
  return fs::is_directory(path, unknown);
}

// A name in its parts. `folder` is empty if the name is a file's.
struct FolderName {
  std::string folder, config, split;
};

FolderName parse_name(const std::string& path) {
  std::error_code unknown;
  if (is_folder(path)) return {.folder = path, .config = {}, .split = {}};
  if (fs::exists(path, unknown)) return {};
  const size_t last = path.rfind(':');
  if (last == std::string::npos) return {};
  const std::string before = path.substr(0, last), split = path.substr(last + 1);
  if (is_folder(before)) return {.folder = before, .config = {}, .split = split};
  const size_t first = before.rfind(':');
  if (first == std::string::npos || !is_folder(before.substr(0, first))) return {};
  return {.folder = before.substr(0, first), .config = before.substr(first + 1), .split = split};
}

class RowsOfFiles : public RowReader {
 public:
  explicit RowsOfFiles(std::vector<std::string> files) : files_(std::move(files)) {}
  bool next(Json& row) override {
    for (;;) {
      if (reader_ && reader_->next(row)) return true;
      if (next_file_ == files_.size()) return false;
      reader_ = open_row_file(files_[next_file_++]);
    }
  }
  std::string where() const override { return reader_ ? reader_->where() : files_.empty() ? "" : files_.front(); }

 private:
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::unique_ptr<RowReader> reader_;
};

}  // namespace

bool is_dataset_folder(std::string_view name) { return !parse_name(expand_path(name)).folder.empty(); }

std::vector<std::string> row_files(std::string_view name, std::string_view split) {
  const std::string path = expand_path(name);
  const FolderName found = parse_name(path);
  if (found.folder.empty()) return {path};
  return dataset_files(found.folder, found.config, found.split.empty() ? split : std::string_view(found.split));
}

std::unique_ptr<RowReader> open_rows(std::string_view name, std::string_view split) {
  return std::make_unique<RowsOfFiles>(row_files(name, split));
}

void each_row(std::string_view name, const std::function<void(const Json&, const std::string&)>& row) {
  const std::unique_ptr<RowReader> rows = open_rows(name);
  for (Json value; rows->next(value);) row(value, rows->where());
}

}  // namespace hone
