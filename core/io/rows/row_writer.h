#pragma once
// Creates a file of rows: JSON Lines, JSON, CSV or Parquet. The file appears complete at finish(): it is written beside
// its place and renamed (core/io/compressed_writer.h).
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/io/row_stream.h"

namespace hone {

// The name decides: .jsonl, .ndjson | .json | .csv, .tsv | .parquet, also with .gz or .zst. "-" is JSON Lines on
// standard output.
std::unique_ptr<RowWriter> create_row_file(const std::filesystem::path& path);

std::unique_ptr<RowWriter> create_jsonl_rows(const std::filesystem::path& path);
std::unique_ptr<RowWriter> create_json_rows(const std::filesystem::path& path);
std::unique_ptr<RowWriter> create_csv_rows(const std::filesystem::path& path, char delimiter);

}  // namespace hone
