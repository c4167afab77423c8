#include "core/io/jsonl.h"

namespace hone {

bool is_jsonl(std::string_view path) { return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz"); }

bool JsonlReader::next(Json& row) {
  while (lines_.next(line_)) {
    if (line_.find_first_not_of(" \t") == std::string::npos) continue;
    row = parse_json(line_, lines_.name(), lines_.line_number());
    return true;
  }
  return false;
}

std::string JsonlReader::where() const { return concat(lines_.name(), ":", lines_.line_number()); }

void read_jsonl(const std::filesystem::path& path, const std::function<void(const Json& row, int64_t line)>& row) {
  JsonlReader rows(path);
  for (Json value; rows.next(value);) row(value, rows.line_number());
}

}  // namespace hone
