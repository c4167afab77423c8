#include "run/watch/log_piece.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/base/format.h"
#include "core/io/file.h"

namespace hone {
namespace {

constexpr int64_t piece_bytes = int64_t{1} << 20, max_line_bytes = int64_t{16} << 20, digest_bytes = 64;

// Reads ranges of a file. A file that is not there has no bytes.
class RangeReader {
 public:
  explicit RangeReader(const std::filesystem::path& path) : path_(path) {
    std::error_code missing;
    if (!std::filesystem::exists(path, missing)) return;
    descriptor_ = open_file(path);
    size_ = static_cast<int64_t>(::lseek(descriptor_, 0, SEEK_END));
  }
  ~RangeReader() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  RangeReader(const RangeReader&) = delete;
  RangeReader& operator=(const RangeReader&) = delete;

  int64_t size() const { return size_; }
  // At most `count` bytes; fewer at the end of the file.
  std::string read(int64_t begin, int64_t count) const {
    std::string out(static_cast<size_t>(std::clamp<int64_t>(size_ - begin, 0, count)), '\0');
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t got =
          ::pread(descriptor_, out.data() + done, out.size() - done, begin + static_cast<int64_t>(done));
      if (got < 0 && errno == EINTR) continue;
      HONE_CHECK(got >= 0, path_.string(), ": cannot read: ", std::strerror(errno));
      if (got == 0) break;  // it was cut meanwhile
      done += static_cast<size_t>(got);
    }
    out.resize(done);
    return out;
  }
  // FNV-1a of the bytes before a place.
  std::string digest_before(int64_t offset) const {
    if (offset == 0) return "0";
    const int64_t begin = std::max<int64_t>(0, offset - digest_bytes);
    uint32_t hash = 2166136261u;
    for (const char c : read(begin, offset - begin)) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return format_text("%08x", hash);
  }

 private:
  const std::filesystem::path& path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace

LogPiece read_log_piece(const std::filesystem::path& path, LogPlace from) {
  const RangeReader file(path);
  LogPiece out{.lines = {}, .next = {}, .size = file.size()};
  const bool fits = from.offset >= 0 && from.offset <= file.size() && file.digest_before(from.offset) == from.digest;
  if (!fits) {
    out.reset = true;
    from = {};
  }
  int64_t wanted = piece_bytes;
  std::string bytes = file.read(from.offset, wanted);
  size_t newline = bytes.rfind('\n');
  while (newline == std::string::npos && static_cast<int64_t>(bytes.size()) == wanted && wanted < max_line_bytes) {
    wanted *= 2;
    bytes = file.read(from.offset, wanted);
    newline = bytes.find('\n');
  }
  int64_t used = newline == std::string::npos ? 0 : static_cast<int64_t>(newline) + 1;
  out.lines = bytes.substr(0, static_cast<size_t>(used));
  if (newline == std::string::npos && static_cast<int64_t>(bytes.size()) >= max_line_bytes)
    used = static_cast<int64_t>(bytes.size());  // what is left of the line is not JSON; readers ignore it
  out.next.offset = from.offset + used;
  out.next.digest = file.digest_before(out.next.offset);
  return out;
}

LogPlace place_near_end(const std::filesystem::path& path, int64_t bytes) {
  const RangeReader file(path);
  LogPlace out;
  if (file.size() > bytes) {
    const std::string end = file.read(file.size() - bytes, bytes);
    const size_t newline = end.find('\n');
    out.offset = file.size() - bytes + (newline == std::string::npos ? 0 : static_cast<int64_t>(newline) + 1);
    if (newline == std::string::npos) out.offset = 0;
  }
  out.digest = file.digest_before(out.offset);
  return out;
}

}  // namespace hone
