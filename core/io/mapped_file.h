#pragma once
// MappedFile: the bytes of a whole file, read-only. They are memory-mapped; a .gz file is unpacked into memory.
#include <filesystem>
#include <string>
#include <string_view>

namespace hone {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view view() const {
    return mapped_ ? std::string_view(static_cast<const char*>(mapped_), size_) : std::string_view(unpacked_);
  }

 private:
  std::string unpacked_;
  void* mapped_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hone
