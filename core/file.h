#pragma once
// Files as the rest of hone sees them: whole, line by line, or replaced at once. Every reader accepts .gz (by content, through zlib) and
// every Error names the path and the system's reason.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/json.h"

namespace hone {

// Expands ${NAME} from the environment (an unset name is an Error that says so); HONE_DATA is the usual one. "~/" is the home folder.
std::string expand_path(std::string_view path);

// The whole file, unpacked if it is gzip. limit bounds the unpacked size.
std::string read_file(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 36);

// Lines of a text file (or of standard input for "-"), streamed; CRLF is LF; a last line without newline counts.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path);
  ~LineReader();
  // False at the end. A line longer than 256 MiB is an Error with its number.
  bool next(std::string& line);
  int64_t line_number() const;  // of the line last given, from 1
  const std::string& name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Calls row(value, line number) for each non-blank line of a JSON Lines file; a malformed line is an Error "file:line: what".
void read_jsonl(const std::filesystem::path& path, const std::function<void(const Json& row, int64_t line)>& row);

// Writes path.tmp beside it, flushes to disk, renames over. On failure (disk full, say) the old file is untouched and the temporary gone.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// Makes the folder and its parents; an Error says why not (not writable, a file is in the way).
void make_folder(const std::filesystem::path& path);

}  // namespace hone
