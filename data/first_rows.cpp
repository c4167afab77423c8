#include "data/first_rows.h"

#include "core/io/file.h"
#include "core/io/rows/rows.h"

namespace hone {

static bool is_empty_file(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown) && std::filesystem::file_size(path, unknown) == 0;
}

// False if `when` takes no row. A file that cannot be read has rows, so that the check finds its problem.
static bool has_rows(const RowSource& source) {
  try {
    const std::unique_ptr<RowReader> rows = open_rows(source.files[0], source.split);
    for (Json value; rows->next(value);)
      if (source.when.holds(value)) return true;
    return false;
  } catch (const Error&) {  // the check reads the file again and reports it
    return true;
  }
}

void each_first_row(const RowSource& source, const std::function<void(const RowSource& one)>& check) {
  RowSource one = source;
  one.limit = 1;
  if (source.files.size() < 2) {
    if (source.files.empty() || source.files[0] != "-") check(one);
    return;
  }
  one.offset = 0;  // of the rows of all files together
  bool met = false;
  for (const std::string& file : source.files) {
    if (file == "-" || is_empty_file(expand_path(file))) continue;
    one.files = {file};
    if (!source.when.empty() && !has_rows(one)) continue;
    met = true;
    check(one);
  }
  if (met || source.when.empty()) return;
  one.files = source.files;
  check(one);
}

}  // namespace hone
