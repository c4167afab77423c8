#pragma once
// Files as the rest of hone sees them: whole, line by line, or replaced at once. Every reader accepts .gz (by content,
// through zlib), none accepts what is not a file (but "-", standard input), and every Error names the path and the
// system's reason.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace hone {

// Expands ${NAME} from the environment (an unset name is an Error that says so); HONE_DATA is the usual one. "~/" is
// the home folder.
std::string expand_path(std::string_view path);

// Bounds of files that are read whole, in bytes once they are unpacked: 12 MB of gzip may unpack to 12 GB.
inline constexpr uint64_t max_recipe_bytes = uint64_t{16} << 20;
inline constexpr uint64_t max_config_bytes = uint64_t{64} << 20;    // JSON beside a model or a run, a chat template
inline constexpr uint64_t max_tokenizer_bytes = uint64_t{1} << 30;  // a vocabulary, its merges
inline constexpr uint64_t max_document_bytes = uint64_t{4}
                                               << 30;  // a text, a log, the state of a checkpoint, weights in gzip

// Opens a file to read; the caller closes it. What is no file (a FIFO, a socket, a directory, a device but /dev/null)
// is an Error at once.
int open_file(const std::filesystem::path& path);

// The whole file (standard input for "-"), unpacked if it is gzip. A file of more than `limit` bytes is an Error.
std::string read_file(const std::filesystem::path& path, uint64_t limit = max_config_bytes);

// The first bytes of a file as they are, at most `size`.
std::string read_beginning(const std::filesystem::path& path, size_t size);

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

// Writes a file (standard output for "-") piece by piece; a write that fails (disk full) is an Error that names the
// path.
class FileWriter {
 public:
  enum class Mode { truncate, append };
  explicit FileWriter(std::filesystem::path path, Mode mode = Mode::truncate);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  // Buffered; what is written reaches the system at flush() or sync(), at the latest when the writer ends (errors are
  // then lost).
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

// Makes a file, empty, that no other process writes meanwhile: an Error if one does. The lock goes with the descriptor,
// which the caller closes.
int create_locked_file(const std::filesystem::path& path);

// An Error if something other than a file is there (a folder, a device): what is renamed over must not be one.
void check_replaceable(const std::filesystem::path& path);

// Writes path.tmp beside it, flushes to disk, renames over. On failure (disk full, say) the old file is untouched and
// the temporary gone.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// Makes the folder and its parents; an Error says why not (not writable, a file is in the way).
void make_folder(const std::filesystem::path& path);

}  // namespace hone
