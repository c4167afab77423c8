#pragma once
// Reading and writing files: whole, line by line, or replaced atomically. Every reader accepts gzip (recognized by
// content) and refuses anything but a regular file; "-" is standard input. Every Error names the path and the reason.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace hone {

// Expands ${NAME} from the environment (HONE_DATA, usually) and "~/". Throws Error if NAME is not set.
std::string expand_path(std::string_view path);

// Limits of files that are read whole, in bytes after unpacking: 12 MB of gzip may unpack to 12 GB.
inline constexpr uint64_t max_recipe_bytes = uint64_t{16} << 20;
inline constexpr uint64_t max_config_bytes = uint64_t{64} << 20;    // JSON beside a model or a run, a chat template
inline constexpr uint64_t max_tokenizer_bytes = uint64_t{1} << 30;  // a vocabulary, its merges
// A text, a log, the state of a checkpoint, weights in gzip.
inline constexpr uint64_t max_document_bytes = uint64_t{4} << 30;

// Opens a file for reading; the caller closes it. Throws Error at once for a FIFO, a socket, a directory or a device
// other than /dev/null.
int open_file(const std::filesystem::path& path);

// The whole file, unpacked if it is gzip. Throws Error if it has more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t limit = max_config_bytes);

// The first bytes of a file, at most `size`, not unpacked.
std::string read_beginning(const std::filesystem::path& path, size_t size);

// Streams the lines of a text file. CRLF ends a line too. The last line needs no newline.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path);
  ~LineReader();
  // False at the end. Throws Error with the line number if a line is longer than 256 MiB.
  bool next(std::string& line);
  int64_t line_number() const;  // number of the last line returned, from 1
  const std::string& name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a file piece by piece; "-" is standard output. A failed write (disk full) is an Error that names the path.
class FileWriter {
 public:
  enum class Mode { truncate, append };
  explicit FileWriter(std::filesystem::path path, Mode mode = Mode::truncate);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  // Buffered. The bytes reach the system at flush() or sync(), at the latest in the destructor, which ignores errors.
  void write(std::string_view bytes);
  void flush();
  void sync();  // flush(), then fsync()
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_through(std::string_view bytes);
  std::filesystem::path path_;
  std::string name_, buffer_;
  int descriptor_;
};

// fsync() of a file or folder: its present state survives a power loss.
void sync_to_disk(const std::filesystem::path& path);

// Creates an empty file and locks it (flock). Throws Error if another process has locked it. The caller closes the
// descriptor, which releases the lock.
int create_locked_file(const std::filesystem::path& path);

// Throws Error if `path` exists and is no regular file: a rename would replace a folder or device.
void check_replaceable(const std::filesystem::path& path);

// Writes path.tmp, flushes it to disk and renames it to `path`. On failure the old file is unchanged and path.tmp is
// removed.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// Creates the folder and its parents. The Error names the reason (not writable, a file of that name exists).
void make_folder(const std::filesystem::path& path);

}  // namespace hone
