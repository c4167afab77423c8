#pragma once
// A file that appears only when it is complete, compressed by its name.
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/io/compressed_writer.h"

namespace hone {

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
