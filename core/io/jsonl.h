#pragma once
// JSON Lines: one value a line. Files may be .gz when read; "-" is standard input or output.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/io/file.h"
#include "core/io/json.h"

namespace hone {

// By its name: .jsonl or .jsonl.gz.
bool is_jsonl(std::string_view path);

// The rows of a file one after another; blank lines are passed over. A malformed line is an Error "file:line:column:
// what".
class JsonlReader {
 public:
  explicit JsonlReader(const std::filesystem::path& path) : lines_(path) {}
  bool next(Json& row);  // false at the end
  int64_t line_number() const { return lines_.line_number(); }
  // "file:line" of the row last given, for messages about it.
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
  // To be called at the end: what is still buffered is written, or an Error says why not.
  void flush() { file_.flush(); }

 private:
  FileWriter file_;
};

}  // namespace hone
