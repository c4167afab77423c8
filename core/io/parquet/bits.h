#pragma once
// Decoders of Parquet's integer streams. They give one value at a time, so that no count that a file states decides
// about memory. Each throws an Error where its bytes end.
#include <cstdint>
#include <string_view>
#include <vector>

namespace hone::parquet {

// Numbers of `width` bits, from the least significant bit of each byte on.
class BitReader {
 public:
  BitReader() = default;
  explicit BitReader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t next(int width);  // width: 0 to 64

 private:
  std::string_view bytes_;
  size_t bit_ = 0;
};

// Runs of equal values, and runs of packed bits (RLE). width: bits of a value, 0 to 32.
class RunDecoder {
 public:
  RunDecoder() = default;
  RunDecoder(std::string_view bytes, int width);
  uint32_t next();

 private:
  void begin_run();
  std::string_view bytes_;
  int width_ = 0;
  uint64_t left_ = 0;  // values of the current run
  bool packed_ = false;
  uint32_t value_ = 0;
  BitReader bits_;
};

// DELTA_BINARY_PACKED.
class DeltaDecoder {
 public:
  DeltaDecoder() = default;
  explicit DeltaDecoder(std::string_view bytes);
  int64_t next();
  uint64_t count() const { return count_; }
  // The bytes after the stream, once all values were read.
  std::string_view rest() const { return bytes_; }

 private:
  void begin_block();
  void begin_miniblock();
  std::string_view bytes_;
  uint64_t block_size_ = 0, num_miniblocks_ = 0, count_ = 0, given_ = 0;
  uint64_t value_ = 0, min_delta_ = 0;
  std::string_view widths_;  // of the block's miniblocks that are left
  uint64_t left_ = 0;        // values of the current miniblock
  int width_ = 0;
  BitReader bits_;
};

}  // namespace hone::parquet
