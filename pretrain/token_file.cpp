#include "pretrain/token_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/io/file.h"

namespace hone {

static_assert(sizeof(TokenFileHeader) == 64);

// A file that is mapped read-only.
struct TokenFile::Impl {
  explicit Impl(const std::filesystem::path& path) : name(path.string()) {
    const int descriptor = open_file(path);
    struct stat status {};
    const bool known = ::fstat(descriptor, &status) == 0 && status.st_size >= int64_t{sizeof header};
    size = known ? static_cast<uint64_t>(status.st_size) : 0;
    void* mapped = known ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0) : MAP_FAILED;
    const int reason = errno;
    ::close(descriptor);
    HONE_CHECK(known, name, ": is no token file (too short for its header)");
    HONE_CHECK(mapped != MAP_FAILED, name, ": cannot map: ", std::strerror(reason));
    bytes = static_cast<const unsigned char*>(mapped);
  }
  ~Impl() { ::munmap(const_cast<unsigned char*>(bytes), size); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check() {
    std::memcpy(&header, bytes, sizeof header);
    HONE_CHECK(std::memcmp(header.magic, token_file_magic, sizeof header.magic) == 0, name,
               ": is no token file (it does not start with HONETOK1)");
    HONE_CHECK(header.bytes_per_id == 2 || header.bytes_per_id == 4, name, ": ", header.bytes_per_id,
               " bytes per id; 2 or 4 are known");
    HONE_CHECK(header.vocab_size > 0 && header.vocab_size <= uint32_t{std::numeric_limits<int32_t>::max()}, name,
               ": vocabulary of ", header.vocab_size);
    const uint64_t body = size - sizeof header;
    HONE_CHECK(header.num_tokens <= body / header.bytes_per_id, name, ": says it has ", header.num_tokens,
               " tokens, more than its ", size, " bytes hold");
    const uint64_t ids_end = sizeof header + header.num_tokens * header.bytes_per_id;
    HONE_CHECK(header.documents_offset >= ids_end && header.documents_offset <= size, name,
               ": its document table at byte ", header.documents_offset, " is not between the ids' end (", ids_end,
               ") and the file's (", size, ")");
    HONE_CHECK(
        header.num_documents == (size - header.documents_offset) / 8 && (size - header.documents_offset) % 8 == 0, name,
        ": says it has ", header.num_documents, " documents, its table has ", size - header.documents_offset, " bytes");
    uint64_t before = 0;
    for (uint64_t d = 0; d < header.num_documents; ++d) {
      const uint64_t start = document(d);
      HONE_CHECK(start >= before && start <= header.num_tokens && (d > 0 || start == 0), name, ": document ", d,
                 " starts at token ", start);
      before = start;
    }
  }
  uint64_t document(uint64_t d) const {
    uint64_t start;
    std::memcpy(&start, bytes + header.documents_offset + 8 * d, 8);
    return start;
  }

  std::string name;
  TokenFileHeader header;
  const unsigned char* bytes = nullptr;
  uint64_t size = 0;
};

TokenFile::TokenFile(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path)) { impl_->check(); }
TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;

int64_t TokenFile::num_tokens() const { return static_cast<int64_t>(impl_->header.num_tokens); }
int64_t TokenFile::num_documents() const { return static_cast<int64_t>(impl_->header.num_documents); }
int32_t TokenFile::vocab_size() const { return static_cast<int32_t>(impl_->header.vocab_size); }

int64_t TokenFile::document_start(int64_t document) const {
  HONE_CHECK(document >= 0 && document <= num_documents(), impl_->name, ": document ", document, " of ",
             num_documents());
  return document == num_documents() ? num_tokens()
                                     : static_cast<int64_t>(impl_->document(static_cast<uint64_t>(document)));
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  HONE_CHECK(begin >= 0 && begin <= num_tokens() && count <= num_tokens() - begin, impl_->name, ": tokens ", begin, "+",
             count, " of ", num_tokens());
  const size_t width = impl_->header.bytes_per_id;
  const unsigned char* from = impl_->bytes + sizeof impl_->header + static_cast<size_t>(begin) * width;
  for (size_t i = 0; i < out.size(); ++i, from += width) {
    uint32_t id = 0;
    std::memcpy(&id, from, width);  // the format is little-endian, like the machine
    HONE_CHECK(id < impl_->header.vocab_size, impl_->name, ": token ", begin + static_cast<int64_t>(i), " is ", id,
               ", past the vocabulary of ", impl_->header.vocab_size);
    out[i] = static_cast<int32_t>(id);
  }
}

}  // namespace hone
