#include "core/io/compression.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <limits>

namespace hone {
namespace {

constexpr size_t kBlock = size_t{1} << 16;
constexpr int kZstdLevel = 6;

uInt chunk_size(size_t size) { return static_cast<uInt>(std::min<size_t>(size, std::numeric_limits<uInt>::max())); }

// zlib does not write through next_in, but its type is not const.
Bytef* input_of(std::string_view in) { return reinterpret_cast<Bytef*>(const_cast<char*>(in.data())); }

class GzipUnpacker : public Unpacker {
 public:
  GzipUnpacker() { HONE_CHECK(inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK, "gzip: out of memory"); }
  ~GzipUnpacker() override { inflateEnd(&stream_); }
  GzipUnpacker(const GzipUnpacker&) = delete;
  GzipUnpacker& operator=(const GzipUnpacker&) = delete;

  Progress unpack(std::string_view in, char* out, size_t size) override {
    if (at_boundary_ && members_ > 0 && in.starts_with('\0')) return {.consumed = 1, .produced = 0};  // padding
    at_boundary_ = false;
    stream_.next_in = input_of(in);
    stream_.avail_in = chunk_size(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = chunk_size(size);
    const uInt in_before = stream_.avail_in, out_before = stream_.avail_out;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    const Progress done{in_before - stream_.avail_in, out_before - stream_.avail_out};
    HONE_CHECK(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR,
               "the gzip data are damaged: ", stream_.msg ? stream_.msg : "they are not valid");
    if (status == Z_STREAM_END) {
      ++members_;
      at_boundary_ = true;
      HONE_CHECK(inflateReset(&stream_) == Z_OK, "gzip: cannot begin the next member");
    }
    return done;
  }
  bool at_boundary() const override { return at_boundary_; }

 private:
  z_stream stream_{};
  bool at_boundary_ = true;
  int64_t members_ = 0;
};

class ZstdUnpacker : public Unpacker {
 public:
  ZstdUnpacker() : stream_(ZSTD_createDStream(), ZSTD_freeDStream) { HONE_CHECK(stream_, "zstd: out of memory"); }
  Progress unpack(std::string_view in, char* out, size_t size) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out, size, 0};
    const size_t status = ZSTD_decompressStream(stream_.get(), &output, &input);
    HONE_CHECK(!ZSTD_isError(status), "the zstd data are damaged: ", ZSTD_getErrorName(status));
    at_boundary_ = status == 0;
    return {input.pos, output.pos};
  }
  bool at_boundary() const override { return at_boundary_; }

 private:
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  bool at_boundary_ = true;
};

class GzipPacker : public Packer {
 public:
  GzipPacker() {
    HONE_CHECK(deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK,
               "gzip: out of memory");
  }
  ~GzipPacker() override { deflateEnd(&stream_); }
  GzipPacker(const GzipPacker&) = delete;
  GzipPacker& operator=(const GzipPacker&) = delete;

  void pack(std::string_view in, std::string& out) override {
    while (!in.empty()) {
      stream_.next_in = input_of(in);
      stream_.avail_in = chunk_size(in.size());
      const uInt before = stream_.avail_in;
      run(Z_NO_FLUSH, out);
      in.remove_prefix(before - stream_.avail_in);
    }
  }
  void end(std::string& out) override {
    stream_.avail_in = 0;
    while (run(Z_FINISH, out) != Z_STREAM_END) {}
    HONE_CHECK(deflateReset(&stream_) == Z_OK, "gzip: cannot begin the next member");
  }

 private:
  int run(int flush, std::string& out) {
    std::array<char, kBlock> block;
    stream_.next_out = reinterpret_cast<Bytef*>(block.data());
    stream_.avail_out = static_cast<uInt>(block.size());
    const int status = deflate(&stream_, flush);
    HONE_CHECK(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, "gzip: cannot compress");
    out.append(block.data(), block.size() - stream_.avail_out);
    return status;
  }
  z_stream stream_{};
};

class ZstdPacker : public Packer {
 public:
  ZstdPacker() : stream_(ZSTD_createCStream(), ZSTD_freeCStream) {
    HONE_CHECK(stream_, "zstd: out of memory");
    ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_compressionLevel, kZstdLevel);
    ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_checksumFlag, 1);
  }
  void pack(std::string_view in, std::string& out) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    while (input.pos < input.size) run(input, ZSTD_e_continue, out);
  }
  void end(std::string& out) override {
    ZSTD_inBuffer input{"", 0, 0};
    while (run(input, ZSTD_e_end, out) != 0) {}
  }

 private:
  size_t run(ZSTD_inBuffer& input, ZSTD_EndDirective directive, std::string& out) {
    std::array<char, kBlock> block;
    ZSTD_outBuffer output{block.data(), block.size(), 0};
    const size_t left = ZSTD_compressStream2(stream_.get(), &output, &input, directive);
    HONE_CHECK(!ZSTD_isError(left), "zstd: cannot compress: ", ZSTD_getErrorName(left));
    out.append(block.data(), output.pos);
    return left;
  }
  std::unique_ptr<ZSTD_CStream, size_t (*)(ZSTD_CStream*)> stream_;
};

}  // namespace

Compression compression_of_content(std::string_view beginning) {
  const auto byte = [&](size_t i) { return i < beginning.size() ? static_cast<uint8_t>(beginning[i]) : 0; };
  if (byte(0) == 0x1F && byte(1) == 0x8B) return Compression::gzip;
  if (byte(0) == 0x28 && byte(1) == 0xB5 && byte(2) == 0x2F && byte(3) == 0xFD) return Compression::zstd;
  // A zstd file may begin with a skippable frame.
  if ((byte(0) & 0xF0) == 0x50 && byte(1) == 0x2A && byte(2) == 0x4D && byte(3) == 0x18) return Compression::zstd;
  return Compression::none;
}

Compression compression_of_name(std::string_view path) {
  return path.ends_with(".gz") ? Compression::gzip : path.ends_with(".zst") ? Compression::zstd : Compression::none;
}

std::string_view without_compression(std::string_view path) {
  const size_t suffix = path.ends_with(".gz") ? 3 : path.ends_with(".zst") ? 4 : 0;
  return path.substr(0, path.size() - suffix);
}

std::unique_ptr<Unpacker> make_unpacker(Compression compression) {
  if (compression == Compression::gzip) return std::make_unique<GzipUnpacker>();
  if (compression == Compression::zstd) return std::make_unique<ZstdUnpacker>();
  return nullptr;
}

std::unique_ptr<Packer> make_packer(Compression compression) {
  if (compression == Compression::gzip) return std::make_unique<GzipPacker>();
  if (compression == Compression::zstd) return std::make_unique<ZstdPacker>();
  return nullptr;
}

uint32_t gzip_checksum(std::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(0, input_of(bytes), bytes.size()));
}

std::string unpack(Compression compression, std::string_view packed, size_t limit) {
  const std::unique_ptr<Unpacker> unpacker = make_unpacker(compression);
  if (!unpacker) return std::string(packed);
  std::string out, block(kBlock, '\0');
  for (;;) {
    if (packed.empty() && unpacker->at_boundary()) return out;
    const Unpacker::Progress done = unpacker->unpack(packed, block.data(), block.size());
    packed.remove_prefix(done.consumed);
    out.append(block, 0, done.produced);
    HONE_CHECK(out.size() <= limit, "the compressed data have more than ", limit, " bytes");
    HONE_CHECK(done.consumed + done.produced > 0, "the compressed data end early");
  }
}

std::string pack(Compression compression, std::string_view text) {
  const std::unique_ptr<Packer> packer = make_packer(compression);
  if (!packer) return std::string(text);
  std::string out;
  packer->pack(text, out);
  packer->end(out);
  return out;
}

}  // namespace hone
