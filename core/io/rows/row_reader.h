#pragma once
// Opens a file of rows. Each container has its own reader: JSON Lines, JSON, CSV, Parquet. All but Parquet stream gzip
// and zstd; memory holds a row (Parquet: a page of each column), not the file.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/io/row_stream.h"

namespace hone {

enum class RowFormat { unknown, text, jsonl, json, csv, parquet };

// What the name says, without .gz and .zst: .txt | .jsonl, .ndjson | .json | .csv, .tsv | .parquet. Upper case counts.
RowFormat row_format_of_name(std::string_view path);

// True if the file holds rows by its name or is Parquet by its content; false for texts and files of other names.
bool is_row_file(const std::filesystem::path& path);

// Opens a file. The name says the format; Parquet is also known by its content. A .txt file is one row {text}. A file
// of another name is a JSON array if it begins with "[", else JSON Lines.
std::unique_ptr<RowReader> open_row_file(const std::filesystem::path& path);

// The readers by themselves.
std::unique_ptr<RowReader> open_jsonl_rows(const std::filesystem::path& path);
// A JSON array of objects, or objects one after another on any number of lines.
std::unique_ptr<RowReader> open_json_rows(const std::filesystem::path& path);
// RFC 4180 with a header row. Values are strings as they are written. delimiter: '\0' = the most frequent of comma,
// semicolon, tab and bar in the header.
std::unique_ptr<RowReader> open_csv_rows(const std::filesystem::path& path, char delimiter = '\0');

}  // namespace hone
