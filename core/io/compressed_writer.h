#pragma once
// Files that are compressed if their name ends in .gz or .zst; "-" is standard output.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/io/compression.h"
#include "core/io/file.h"

namespace hone {

// Writes a file piece by piece.
class CompressedWriter {
 public:
  // `name` decides about the compression; by default it is the path.
  explicit CompressedWriter(const std::filesystem::path& path, FileWriter::Mode mode = FileWriter::Mode::truncate)
      : CompressedWriter(path, path.string(), mode) {}
  CompressedWriter(const std::filesystem::path& path, std::string_view name, FileWriter::Mode mode);
  // Ends the compressed data. Ignores errors.
  ~CompressedWriter();
  void write(std::string_view bytes);
  // Writes what is buffered. Compressed data end here, so that the file is complete; later bytes begin another gzip
  // member or zstd frame.
  void flush();
  void sync();  // flush(), then fsync()

 private:
  void end_packed();
  FileWriter file_;
  std::unique_ptr<Packer> packer_;  // null: not compressed
  std::string packed_;
  bool open_ = false;  // bytes were packed since the last end
};

// Writes PATH.tmp. finish() flushes it to disk and renames it to PATH; without finish() the destructor removes it. The
// text is compressed if the name ends in .gz or .zst; its bytes depend on the text alone. "-" is standard output. An
// Error names the path.
class ReplacedFile {
 public:
  explicit ReplacedFile(const std::filesystem::path& path);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;
  void write(std::string_view bytes) { writer_->write(bytes); }
  void finish();

 private:
  std::filesystem::path path_, temporary_;
  std::unique_ptr<CompressedWriter> writer_;
};

}  // namespace hone
