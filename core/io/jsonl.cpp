#include "core/io/jsonl.h"

#include "core/io/utf8.h"

namespace hone {

bool JsonlReader::next(Json& row) {
  while (lines_.next(line_)) {
    if (lines_.line_number() == 1) {
      if (line_.starts_with(utf8_bom)) line_.erase(0, utf8_bom.size());
      HONE_CHECK(!line_.starts_with("\xFF\xFE") && !line_.starts_with("\xFE\xFF"), lines_.name(),
                 ": the text is UTF-16; save it as UTF-8");
    }
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
