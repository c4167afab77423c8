#include "core/io/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/io/file.h"

namespace hone {

MappedFile::MappedFile(const std::filesystem::path& path) {
  if (path.extension() == ".gz") {
    unpacked_ = read_file(path, max_document_bytes);
    return;
  }
  const int descriptor = open_file(path);
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (known && status.st_size > 0) {
    size_ = static_cast<size_t>(status.st_size);
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    mapped_ = mapped == MAP_FAILED ? nullptr : mapped;
  }
  const std::string why = std::strerror(errno);
  ::close(descriptor);
  HONE_CHECK(known, path.string(), ": cannot read its size: ", why);
  HONE_CHECK(mapped_ || size_ == 0, path.string(), ": cannot map: ", why);
}

MappedFile::~MappedFile() {
  if (mapped_) ::munmap(mapped_, size_);
}

}  // namespace hone
