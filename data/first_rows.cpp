#include "data/first_rows.h"

#include "core/io/file.h"

namespace hone {

static bool is_empty_file(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown) && std::filesystem::file_size(path, unknown) == 0;
}

void each_first_row(const RowSource& source, const std::function<void(const RowSource& one)>& check) {
  RowSource one = source;
  one.limit = 1;
  if (source.files.size() < 2) {
    if (source.files.empty() || source.files[0] != "-") check(one);
    return;
  }
  one.offset = 0;  // of the rows of all files together
  for (const std::string& file : source.files) {
    if (file == "-" || is_empty_file(expand_path(file))) continue;
    one.files = {file};
    check(one);
  }
}

}  // namespace hone
