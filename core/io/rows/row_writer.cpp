#include "core/io/rows/row_writer.h"

#include <cmath>
#include <map>

#include "core/io/compressed_writer.h"
#include "core/io/compression.h"
#include "core/io/parquet/writer.h"
#include "core/io/rows/row_reader.h"

namespace hone {
namespace {

class JsonlRowWriter : public RowWriter {
 public:
  explicit JsonlRowWriter(const std::filesystem::path& path) : file_(path) {}
  void write(const Json& row, const std::string&) override { file_.write(row.dump() + "\n"); }
  void finish() override { file_.finish(); }

 private:
  ReplacedFile file_;
};

class JsonRowWriter : public RowWriter {
 public:
  explicit JsonRowWriter(const std::filesystem::path& path) : file_(path) {}
  void write(const Json& row, const std::string&) override {
    file_.write(first_ ? "[\n" : ",\n");
    file_.write(row.dump());
    first_ = false;
  }
  void finish() override {
    file_.write(first_ ? "[]\n" : "\n]\n");
    file_.finish();
  }

 private:
  ReplacedFile file_;
  bool first_ = true;
};

// CSV has texts only. Numbers and booleans are written as in JSON and read back as texts.
class CsvRowWriter : public RowWriter {
 public:
  CsvRowWriter(const std::filesystem::path& path, char delimiter) : file_(path), delimiter_(delimiter) {}
  bool needs_survey() const override { return true; }
  void survey(const Json& row, const std::string&) override {
    for (const auto& [name, value] : row.as_object())
      if (index_.try_emplace(name, columns_.size()).second) columns_.push_back(name);
  }
  void write(const Json& row, const std::string& where) override {
    write_header();
    std::string line;
    for (const std::string& column : columns_) {
      const Json* value = row.find(column);
      HONE_CHECK(value, where, ": column '", column, "' is missing; CSV cannot tell that from an empty text");
      add(line, text_of(*value, where, column), &column == &columns_.front());
    }
    file_.write(line + "\n");
  }
  void finish() override {
    write_header();
    file_.finish();
  }

 private:
  void write_header() {
    if (has_header_) return;
    has_header_ = true;
    std::string line;
    for (const std::string& column : columns_) add(line, column, &column == &columns_.front());
    file_.write(line + "\n");
  }
  static std::string text_of(const Json& value, const std::string& where, const std::string& column) {
    HONE_CHECK(!value.is_null(), where, ": column '", column, "' is null; CSV cannot tell that from an empty text");
    HONE_CHECK(!value.is_array() && !value.is_object(), where, ": column '", column, "' is ", value.kind_name(),
               "; CSV holds texts, numbers and booleans; write JSON Lines or Parquet");
    HONE_CHECK(!value.is_number() || std::isfinite(value.as_double()), where, ": column '", column,
               "' is not a finite number, which CSV cannot hold");
    return value.is_string() ? value.as_string() : value.dump();
  }
  // A quoted empty text keeps a row of one column from being a blank line.
  void add(std::string& line, const std::string& text, bool first) const {
    if (!first) line += delimiter_;
    const bool special = text.find_first_of(std::string("\"\r\n,;\t|") + delimiter_) != std::string::npos;
    if (!special && !(text.empty() && columns_.size() == 1)) {
      line += text;
      return;
    }
    line += '"';
    for (const char c : text) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }

  ReplacedFile file_;
  char delimiter_;
  std::vector<std::string> columns_;
  std::map<std::string, size_t> index_;
  bool has_header_ = false;
};

}  // namespace

std::unique_ptr<RowWriter> create_jsonl_rows(const std::filesystem::path& path) {
  return std::make_unique<JsonlRowWriter>(path);
}
std::unique_ptr<RowWriter> create_json_rows(const std::filesystem::path& path) {
  return std::make_unique<JsonRowWriter>(path);
}
std::unique_ptr<RowWriter> create_csv_rows(const std::filesystem::path& path, char delimiter) {
  return std::make_unique<CsvRowWriter>(path, delimiter);
}

std::unique_ptr<RowWriter> create_row_file(const std::filesystem::path& path) {
  const std::string name = path.string();
  const std::string_view plain = without_compression(name);
  if (path == "-") return create_jsonl_rows(path);
  switch (row_format_of_name(name)) {
    case RowFormat::jsonl:
      return create_jsonl_rows(path);
    case RowFormat::json:
      return create_json_rows(path);
    case RowFormat::csv:
      return create_csv_rows(path, plain.ends_with(".tsv") ? '\t' : ',');
    case RowFormat::parquet:
      return create_parquet_rows(path);
    default:
      fail(name, ": the name must end in .jsonl, .json, .csv, .tsv or .parquet, also with .gz or .zst");
  }
}

}  // namespace hone
