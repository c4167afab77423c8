#pragma once
// JSON Lines: one value per line. Readers accept gzip and zstd, and a byte order mark. Writers compress if the name
// ends in .gz or .zst. "-" is standard input or output.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/io/compressed_writer.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace hone {

// Streams the rows of a file and skips blank lines. A malformed line is an Error "file:line:column: what".
class JsonlReader {
 public:
  explicit JsonlReader(const std::filesystem::path& path) : lines_(path) {}
  bool next(Json& row);  // false at the end
  int64_t line_number() const { return lines_.line_number(); }
  // "file:line" of the last row returned, for messages.
  std::string where() const;

 private:
  LineReader lines_;
  std::string line_;
};

// Calls row(value, line number) for each row.
void read_jsonl(const std::filesystem::path& path, const std::function<void(const Json& row, int64_t line)>& row);

class JsonlWriter {
 public:
  explicit JsonlWriter(const std::filesystem::path& path, FileWriter::Mode mode = FileWriter::Mode::truncate)
      : file_(path, mode) {}
  void write(const Json& row) { file_.write(row.dump() + "\n"); }
  // Writes what is buffered and ends compressed data. Call it at the end: the destructor ignores errors.
  void flush() { file_.flush(); }

 private:
  CompressedWriter file_;
};

}  // namespace hone
