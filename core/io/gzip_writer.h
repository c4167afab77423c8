#pragma once
// GzipWriter: a gzip file that appears only when it is complete.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace hone {

// Writes PATH.tmp. commit() flushes it to disk and renames it to PATH. Without commit() the destructor removes it. The
// bytes depend on the text alone: the header has neither time nor name. An Error names the path.
class GzipWriter {
 public:
  explicit GzipWriter(std::filesystem::path path);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;
  void write(std::string_view text);
  void commit();

 private:
  struct Stream;
  std::filesystem::path path_, temporary_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace hone
