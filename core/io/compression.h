#pragma once
// gzip and zstd streams. A gzip file may have several members, a zstd file several frames. Data that end inside one are
// an Error. zlib and libzstd stay behind this header.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace hone {

enum class Compression { none, gzip, zstd };

// What the first bytes of a file say; four bytes suffice.
Compression compression_of_content(std::string_view beginning);
// What the name says: .gz, .zst, or none of them.
Compression compression_of_name(std::string_view path);
// The name without .gz or .zst.
std::string_view without_compression(std::string_view path);

// Unpacks a stream piece by piece.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  struct Progress {
    size_t consumed = 0, produced = 0;
  };
  // Reads from `in` and writes to `out`. If `in` is empty, writes what is left of earlier calls. Throws an Error
  // without the name of the file.
  virtual Progress unpack(std::string_view in, char* out, size_t size) = 0;
  // True between two members or frames: a file may end here.
  virtual bool at_boundary() const = 0;
};
std::unique_ptr<Unpacker> make_unpacker(Compression compression);  // null for none

// Packs a stream piece by piece.
class Packer {
 public:
  virtual ~Packer() = default;
  virtual void pack(std::string_view in, std::string& out) = 0;
  // Ends the member or frame, so that the output up to here is a complete file. pack() then begins another one.
  virtual void end(std::string& out) = 0;
};
std::unique_ptr<Packer> make_packer(Compression compression);  // null for none

// Unpacks a complete text of several members or frames. Throws an Error if it has more than `limit` bytes. Memory grows
// with the bytes that were unpacked, not with the limit.
std::string unpack(Compression compression, std::string_view packed, size_t limit);
std::string pack(Compression compression, std::string_view text);

// CRC-32 of gzip.
uint32_t gzip_checksum(std::string_view bytes);

}  // namespace hone
