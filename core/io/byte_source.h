#pragma once
// Streams a file's bytes, unpacked if their beginning is that of gzip or zstd. "-" is standard input.
#include <filesystem>
#include <memory>
#include <string>

namespace hone {

class ByteSource {
 public:
  explicit ByteSource(const std::filesystem::path& path);
  ~ByteSource();
  // Returns how many bytes it has written to `to`, at most `size`; 0 at the end. Throws an Error that names the file if
  // the compressed data are damaged or end early.
  size_t read(char* to, size_t size);
  const std::string& name() const;  // "standard input" for "-"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads a file byte by byte and counts lines, for parsers of text.
class TextCursor {
 public:
  explicit TextCursor(const std::filesystem::path& path);
  static constexpr int end = -1;
  // The next byte, or `end`. get() goes past it.
  int peek() { return at_ < size_ || fill() ? static_cast<unsigned char>(block_[at_]) : end; }
  int get() {
    const int byte = peek();
    if (byte == end) return end;
    ++at_;
    if (byte == '\n') ++line_;
    return byte;
  }
  int64_t line() const { return line_; }  // of the next byte, from 1
  const std::string& name() const { return source_.name(); }
  // The next bytes without going past them: at most the rest of the block.
  std::string_view ahead();

 private:
  bool fill();
  ByteSource source_;
  std::string block_;
  size_t at_ = 0, size_ = 0;
  int64_t line_ = 1;
};

}  // namespace hone
