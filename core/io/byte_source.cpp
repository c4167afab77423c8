#include "core/io/byte_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/io/compression.h"
#include "core/io/file.h"
#include "core/io/utf8.h"

namespace hone {
namespace {

constexpr size_t kBlock = size_t{1} << 18;

// The bytes as they are in the file.
class RawBytes {
 public:
  explicit RawBytes(const std::filesystem::path& path) : name_(path == "-" ? "standard input" : path.string()) {
    descriptor_ = path == "-" ? ::dup(STDIN_FILENO) : open_file(path);
    HONE_CHECK(descriptor_ >= 0, name_, ": cannot open: ", std::strerror(errno));
  }
  ~RawBytes() { ::close(descriptor_); }
  RawBytes(const RawBytes&) = delete;
  RawBytes& operator=(const RawBytes&) = delete;

  size_t read(char* to, size_t size) {
    for (;;) {
      const ssize_t count = ::read(descriptor_, to, size);
      if (count >= 0) return static_cast<size_t>(count);
      HONE_CHECK(errno == EINTR, name_, ": cannot read: ", std::strerror(errno));
    }
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int descriptor_;
};

}  // namespace

struct ByteSource::Impl {
  explicit Impl(const std::filesystem::path& path) : raw(path), block(kBlock, '\0') {
    while (end < 4 && fill()) {}
    unpacker = make_unpacker(compression_of_content(rest()));
  }
  std::string_view rest() const { return {block.data() + begin, end - begin}; }
  // Adds bytes to the block; false at the end of the file.
  bool fill() {
    if (begin == end) begin = end = 0;
    const size_t count = raw.read(block.data() + end, block.size() - end);
    end += count;
    return count > 0;
  }
  size_t read_plain(char* to, size_t size) {
    if (begin == end && !fill()) return 0;
    const size_t count = std::min(size, end - begin);
    std::memcpy(to, block.data() + begin, count);
    begin += count;
    return count;
  }
  size_t read_unpacked(char* to, size_t size) {
    for (;;) {
      const bool ended = begin == end && !fill();
      if (ended && unpacker->at_boundary()) return 0;
      const Unpacker::Progress done = unpack(to, size);
      if (done.produced > 0) return done.produced;
      HONE_CHECK(!ended, raw.name(), ": cannot read: the compressed data end early");
    }
  }
  Unpacker::Progress unpack(char* to, size_t size) {
    try {
      const Unpacker::Progress done = unpacker->unpack(rest(), to, size);
      begin += done.consumed;
      return done;
    } catch (const Error& error) {  // adds the file: the unpacker does not know it
      fail(raw.name(), ": cannot read: ", error.what());
    }
  }

  RawBytes raw;
  std::string block;
  size_t begin = 0, end = 0;  // the unread part of the block
  std::unique_ptr<Unpacker> unpacker;
};

ByteSource::ByteSource(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path)) {}
ByteSource::~ByteSource() = default;
const std::string& ByteSource::name() const { return impl_->raw.name(); }

size_t ByteSource::read(char* to, size_t size) {
  if (size == 0) return 0;
  return impl_->unpacker ? impl_->read_unpacked(to, size) : impl_->read_plain(to, size);
}

TextCursor::TextCursor(const std::filesystem::path& path) : source_(path), block_(kBlock, '\0') {
  if (ahead().starts_with(utf8_bom)) at_ += utf8_bom.size();
  HONE_CHECK(!ahead().starts_with("\xFF\xFE") && !ahead().starts_with("\xFE\xFF"), name(),
             ": the text is UTF-16; save it as UTF-8");
}

std::string_view TextCursor::ahead() {
  if (at_ == size_) fill();
  return {block_.data() + at_, size_ - at_};
}

bool TextCursor::fill() {
  at_ = 0;
  size_ = source_.read(block_.data(), block_.size());
  return size_ > 0;
}

}  // namespace hone
