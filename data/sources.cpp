#include "data/sources.h"

#include <filesystem>

namespace hone {

std::string name_of(const RowSource& rows) {
  if (rows.files.empty()) return rows.generator.kind.empty() ? "rows" : rows.generator.kind;
  const std::filesystem::path path(rows.files[0]);
  // "data/gsm8k_train.jsonl.gz" is "gsm8k_train"; a folder may end with a slash.
  const std::string file = (path.has_filename() ? path : path.parent_path()).filename().string();
  const std::string stem = file.substr(0, file.find('.', 1));
  return stem.empty() ? "rows" : stem;
}

}  // namespace hone
