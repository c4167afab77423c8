#pragma once
// RowWriter: writes rows as JSON Lines, JSON, CSV or Parquet, by the name of the file. The file appears complete at
// finish(): it is written beside its place and renamed.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace hone {

class RowWriter {
 public:
  virtual ~RowWriter() = default;
  // True if the container must know all rows before the first is written (columns, types). Then call survey() for each
  // row, and write() for the same rows again.
  virtual bool needs_survey() const { return false; }
  virtual void survey(const Json&, const std::string&) {}
  // where: the row's place, for errors. A value that the container cannot hold is an Error that names row and column.
  virtual void write(const Json& row, const std::string& where) = 0;
  virtual void finish() = 0;
};

// The name decides: .jsonl, .ndjson | .json | .csv, .tsv | .parquet, also with .gz or .zst. "-" is JSON Lines on
// standard output.
std::unique_ptr<RowWriter> create_row_file(const std::filesystem::path& path);

std::unique_ptr<RowWriter> create_jsonl_rows(const std::filesystem::path& path);
std::unique_ptr<RowWriter> create_json_rows(const std::filesystem::path& path);
std::unique_ptr<RowWriter> create_csv_rows(const std::filesystem::path& path, char delimiter);

}  // namespace hone
