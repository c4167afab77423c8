#include "core/io/gzip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <system_error>

#include "core/io/file.h"

namespace hone {
namespace {

constexpr int compression_level = 4;         // rollouts shrink to about a quarter at 100 MB/s
constexpr int gzip_window = MAX_WBITS + 16;  // 16: a gzip header instead of zlib's

}  // namespace

struct GzipWriter::Stream {
  explicit Stream(const std::filesystem::path& path) : file(path) {
    HONE_CHECK(deflateInit2(&state, compression_level, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY) == Z_OK,
               path.string(), ": cannot compress: out of memory");
  }
  ~Stream() { deflateEnd(&state); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void deflate_all(std::string_view text, int flush) {
    do {
      const size_t piece = std::min<size_t>(text.size(), std::numeric_limits<uInt>::max());
      state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
      state.avail_in = static_cast<uInt>(piece);
      text.remove_prefix(piece);
      do {
        state.next_out = out.data();
        state.avail_out = static_cast<uInt>(out.size());
        const int code = deflate(&state, text.empty() ? flush : Z_NO_FLUSH);
        HONE_CHECK(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, file.path().string(),
                   ": cannot compress: zlib error ", code);
        file.write({reinterpret_cast<const char*>(out.data()), out.size() - state.avail_out});
      } while (state.avail_out == 0);
    } while (!text.empty());
  }

  FileWriter file;
  z_stream state = {};
  std::array<Bytef, 65536> out;
};

GzipWriter::GzipWriter(std::filesystem::path path) : path_(std::move(path)), temporary_(path_.string() + ".tmp") {
  check_replaceable(path_);
  stream_ = std::make_unique<Stream>(temporary_);
}

GzipWriter::~GzipWriter() {
  if (!stream_) return;
  stream_.reset();
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void GzipWriter::write(std::string_view text) { stream_->deflate_all(text, Z_NO_FLUSH); }

void GzipWriter::commit() {
  stream_->deflate_all({}, Z_FINISH);
  stream_->file.sync();
  stream_.reset();
  std::error_code problem;
  std::filesystem::rename(temporary_, path_, problem);
  HONE_CHECK(!problem, path_.string(), ": cannot be replaced: ", problem.message());
  sync_to_disk(path_.parent_path().empty() ? std::filesystem::path(".") : path_.parent_path());
}

}  // namespace hone
