#include "data/first_rows.h"

#include <algorithm>

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

// Each shard of a dataset folder is a file. A folder that cannot be listed stays as it is: the check reports it.
static std::vector<std::string> files_of(const RowSource& source) {
  std::vector<std::string> out;
  for (const std::string& name : source.files) {
    try {
      for (std::string& file : row_files(name, source.split)) out.push_back(std::move(file));
    } catch (const Error&) {  // see above
      out.push_back(name);
    }
  }
  return out;
}

void each_first_row(const RowSource& source, const std::function<void(const RowSource& one)>& check) {
  RowSource one = source;
  one.limit = 1;
  const std::vector<std::string> files = files_of(source);
  if (files.size() < 2) {
    if (files.empty() || files[0] != "-") check(one);
    return;
  }
  one.offset = 0;  // of the rows of all files together
  bool met = false;
  for (const std::string& file : files) {
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

void check_all_rows(const RowSource& source) {
  const std::vector<std::string>& files = source.files;
  if (files.empty() || std::ranges::find(files, "-") != files.end()) return;
  read_rows(source, [](const Json&, const std::string&) {});
}

}  // namespace hone
