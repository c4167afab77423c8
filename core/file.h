#pragma once
// Files as the rest of hone sees them: whole, line by line, or replaced at once. Every reader accepts .gz (by content, through zlib) and
// every Error names the path and the system's reason.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/check.h"

namespace hone {

// Expands ${NAME} from the environment (an unset name is an Error that says so); HONE_DATA is the usual one. "~/" is the home folder.
std::string expand_path(std::string_view path);

// The whole file (standard input for "-"), unpacked if it is gzip. limit bounds the unpacked size.
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

// Writes a file (standard output for "-") piece by piece; a write that fails (disk full) is an Error that names the path.
class FileWriter {
 public:
  enum class Mode { truncate, append };
  explicit FileWriter(std::filesystem::path path, Mode mode = Mode::truncate);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  // Buffered; what is written reaches the system at flush() or sync(), at the latest when the writer ends (errors are then lost).
  void write(std::string_view bytes);
  void flush();
  void sync();  // flush(), and to the disk itself
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_through(std::string_view bytes);
  std::filesystem::path path_;
  std::string name_, buffer_;
  int descriptor_;
};

// Makes a file's or a folder's present state survive a loss of power.
void sync_to_disk(const std::filesystem::path& path);

// An Error if something other than a file is there (a folder, a device): what is renamed over must not be one.
void check_replaceable(const std::filesystem::path& path);

// Writes path.tmp beside it, flushes to disk, renames over. On failure (disk full, say) the old file is untouched and the temporary gone.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// Makes the folder and its parents; an Error says why not (not writable, a file is in the way).
void make_folder(const std::filesystem::path& path);

}  // namespace hone
