#include "core/io/rows/row_reader.h"

#include <algorithm>
#include <cctype>

#include "core/io/byte_source.h"
#include "core/io/compression.h"
#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "core/io/parquet/reader.h"

namespace hone {
namespace {

class JsonlRows : public RowReader {
 public:
  explicit JsonlRows(const std::filesystem::path& path) : reader_(path) {}
  bool next(Json& row) override {
    if (!reader_.next(row)) return false;
    HONE_CHECK(row.is_object(), where(), ": a row must be an object, this is ", row.kind_name());
    return true;
  }
  std::string where() const override { return reader_.where(); }

 private:
  JsonlReader reader_;
};

class TextRow : public RowReader {
 public:
  explicit TextRow(std::filesystem::path path) : path_(std::move(path)) {}
  bool next(Json& row) override {
    if (done_) return false;
    done_ = true;
    row = JsonObject{{"text", read_file(path_, max_document_bytes)}};
    return true;
  }
  std::string where() const override { return path_.string(); }

 private:
  std::filesystem::path path_;
  bool done_ = false;
};

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool has_parquet_magic(const std::filesystem::path& path) {
  return path != "-" && read_beginning(path, parquet_magic.size()) == parquet_magic;
}

// The first byte that is not white space.
char first_character(const std::filesystem::path& path) {
  TextCursor text(path);
  while (text.peek() != TextCursor::end && std::isspace(text.peek())) text.get();
  return text.peek() == TextCursor::end ? '\0' : static_cast<char>(text.peek());
}

}  // namespace

RowFormat row_format_of_name(std::string_view path) {
  const std::string lower = lower_case(path);
  const std::string_view name = without_compression(lower);
  if (name.ends_with(".txt")) return RowFormat::text;
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return RowFormat::jsonl;
  if (name.ends_with(".json")) return RowFormat::json;
  if (name.ends_with(".csv") || name.ends_with(".tsv")) return RowFormat::csv;
  if (name.ends_with(".parquet")) return RowFormat::parquet;
  return RowFormat::unknown;
}

bool is_row_file(const std::filesystem::path& path) {
  const RowFormat format = row_format_of_name(path.string());
  if (format == RowFormat::unknown) return has_parquet_magic(path);
  return format != RowFormat::text;
}

std::unique_ptr<RowReader> open_jsonl_rows(const std::filesystem::path& path) {
  return std::make_unique<JsonlRows>(path);
}

std::unique_ptr<RowReader> open_row_file(const std::filesystem::path& path) {
  const RowFormat format = row_format_of_name(path.string());
  if (format == RowFormat::parquet || has_parquet_magic(path)) return open_parquet_rows(path);
  if (format == RowFormat::text) return std::make_unique<TextRow>(path);
  if (format == RowFormat::json) return open_json_rows(path);
  if (format == RowFormat::csv)
    return open_csv_rows(path,
                         lower_case(without_compression(lower_case(path.string()))).ends_with(".tsv") ? '\t' : '\0');
  if (format == RowFormat::unknown && path != "-" && first_character(path) == '[') return open_json_rows(path);
  return open_jsonl_rows(path);
}

}  // namespace hone
