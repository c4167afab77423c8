#include "core/io/parquet/codec.h"

#include <lz4.h>
#include <snappy-c.h>

#include <cstring>

#include "core/base/check.h"
#include "core/io/compression.h"

namespace hone::parquet {
namespace {

// The most that a byte of input can unpack to: snappy copies 64 bytes with 3, LZ4 extends a match by 255 with 1.
constexpr size_t kSnappyRatio = 32, kLz4Ratio = 256, kSlack = 64;

std::string unpack_snappy(std::string_view packed, size_t size) {
  size_t length = 0;
  HONE_CHECK(snappy_uncompressed_length(packed.data(), packed.size(), &length) == SNAPPY_OK && length == size &&
                 size <= packed.size() * kSnappyRatio + kSlack,
             "the snappy data of a page are damaged");
  std::string out(size, '\0');
  HONE_CHECK(snappy_uncompress(packed.data(), packed.size(), out.data(), &length) == SNAPPY_OK && length == size,
             "the snappy data of a page are damaged");
  return out;
}

// False if the data are not one LZ4 block of this size.
bool unpack_lz4_block(std::string_view packed, char* out, size_t size) {
  if (packed.size() > LZ4_MAX_INPUT_SIZE || size > LZ4_MAX_INPUT_SIZE) return false;
  const int count = LZ4_decompress_safe(packed.data(), out, static_cast<int>(packed.size()), static_cast<int>(size));
  return count >= 0 && static_cast<size_t>(count) == size;
}

uint32_t big_endian(std::string_view bytes) {
  uint32_t out = 0;
  for (size_t i = 0; i < 4; ++i) out = out << 8 | static_cast<uint8_t>(bytes[i]);
  return out;
}

// The older LZ4 has Hadoop's frames: size of the text and of the block in big-endian, then the block.
bool unpack_hadoop_lz4(std::string_view packed, std::string& out) {
  size_t at = 0;
  while (packed.size() >= 8) {
    const size_t text = big_endian(packed), block = big_endian(packed.substr(4));
    packed.remove_prefix(8);
    if (block > packed.size() || text > out.size() - at) return false;
    if (!unpack_lz4_block(packed.substr(0, block), out.data() + at, text)) return false;
    packed.remove_prefix(block);
    at += text;
  }
  return packed.empty() && at == out.size();
}

std::string unpack_lz4(std::string_view packed, size_t size, bool may_be_hadoop) {
  HONE_CHECK(size <= packed.size() * kLz4Ratio + kSlack, "the LZ4 data of a page are damaged");
  std::string out(size, '\0');
  if (may_be_hadoop && unpack_hadoop_lz4(packed, out)) return out;
  HONE_CHECK(unpack_lz4_block(packed, out.data(), size), "the LZ4 data of a page are damaged");
  return out;
}

std::string unpack_stream(Compression compression, std::string_view packed, size_t size) {
  std::string out = unpack(compression, packed, size);
  HONE_CHECK(out.size() == size, "a page has ", out.size(), " bytes, its header says ", size);
  return out;
}

}  // namespace

std::string unpack_page(Codec codec, std::string_view packed, size_t size) {
  if (size == 0 && packed.empty()) return {};
  switch (codec) {
    case Codec::uncompressed:
      HONE_CHECK(packed.size() == size, "a page has ", packed.size(), " bytes, its header says ", size);
      return std::string(packed);
    case Codec::snappy:
      return unpack_snappy(packed, size);
    case Codec::gzip:
      return unpack_stream(Compression::gzip, packed, size);
    case Codec::zstd:
      return unpack_stream(Compression::zstd, packed, size);
    case Codec::lz4:
      return unpack_lz4(packed, size, true);
    case Codec::lz4_raw:
      return unpack_lz4(packed, size, false);
    case Codec::brotli:
      fail("the pages are compressed with Brotli, which hone does not read; write the file with zstd");
    case Codec::lzo:
      break;
  }
  fail("the pages are compressed with LZO, which hone does not read; write the file with zstd");
}

}  // namespace hone::parquet
