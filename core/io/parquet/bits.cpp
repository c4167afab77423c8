#include "core/io/parquet/bits.h"

#include <algorithm>

#include "core/base/check.h"

namespace hone::parquet {
namespace {

constexpr uint64_t kMaxBlock = uint64_t{1} << 20;

uint8_t take_byte(std::string_view& bytes) {
  HONE_CHECK(!bytes.empty(), "a page ends within its values");
  const auto out = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  return out;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t next = take_byte(bytes);
    out |= static_cast<uint64_t>(next & 0x7F) << shift;
    if ((next & 0x80) == 0) return out;
  }
  fail("a page has an integer of more than 64 bits");
}

uint64_t take_zigzag(std::string_view& bytes) {
  const uint64_t value = take_varint(bytes);
  return (value >> 1) ^ (0 - (value & 1));
}

}  // namespace

uint64_t BitReader::next(int width) {
  uint64_t out = 0;
  for (int done = 0; done < width;) {
    const size_t byte = bit_ / 8;
    const auto offset = static_cast<int>(bit_ % 8);
    HONE_CHECK(byte < bytes_.size(), "a page ends within its values");
    const int count = std::min(8 - offset, width - done);
    const uint64_t bits = static_cast<uint64_t>(static_cast<uint8_t>(bytes_[byte]) >> offset) & ((1u << count) - 1);
    out |= bits << done;
    done += count;
    bit_ += static_cast<size_t>(count);
  }
  return out;
}

RunDecoder::RunDecoder(std::string_view bytes, int width) : bytes_(bytes), width_(width) {
  HONE_CHECK(width >= 0 && width <= 32, "a page has values of ", width, " bits; at most 32 are possible");
}

void RunDecoder::begin_run() {
  const uint64_t header = take_varint(bytes_);
  packed_ = (header & 1) != 0;
  if (!packed_) {
    left_ = header >> 1;
    value_ = 0;
    for (int i = 0; i < (width_ + 7) / 8; ++i) value_ |= static_cast<uint32_t>(take_byte(bytes_)) << (8 * i);
    return;
  }
  const uint64_t groups = header >> 1;
  HONE_CHECK(groups <= UINT32_MAX, "a page has a run of ", groups, " groups");
  left_ = groups * 8;
  // A writer may leave out the bytes of the last group that have no values.
  const uint64_t size = std::min<uint64_t>(groups * static_cast<uint64_t>(width_), bytes_.size());
  bits_ = BitReader(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
}

uint32_t RunDecoder::next() {
  while (left_ == 0) begin_run();
  --left_;
  return packed_ ? static_cast<uint32_t>(bits_.next(width_)) : value_;
}

DeltaDecoder::DeltaDecoder(std::string_view bytes) : bytes_(bytes) {
  block_size_ = take_varint(bytes_);
  num_miniblocks_ = take_varint(bytes_);
  count_ = take_varint(bytes_);
  value_ = take_zigzag(bytes_);
  HONE_CHECK(block_size_ > 0 && block_size_ <= kMaxBlock && num_miniblocks_ > 0 && num_miniblocks_ <= block_size_ &&
                 block_size_ % num_miniblocks_ == 0 && block_size_ / num_miniblocks_ % 8 == 0,
             "a page has delta blocks of ", block_size_, " values in ", num_miniblocks_, " parts");
}

void DeltaDecoder::begin_block() {
  min_delta_ = take_zigzag(bytes_);
  HONE_CHECK(num_miniblocks_ <= bytes_.size(), "a page ends within its values");
  widths_ = bytes_.substr(0, num_miniblocks_);
  bytes_.remove_prefix(num_miniblocks_);
}

void DeltaDecoder::begin_miniblock() {
  if (widths_.empty()) begin_block();
  width_ = static_cast<uint8_t>(widths_.front());
  HONE_CHECK(width_ <= 64, "a page has values of ", width_, " bits; at most 64 are possible");
  widths_.remove_prefix(1);
  left_ = block_size_ / num_miniblocks_;
  const uint64_t size = left_ / 8 * static_cast<uint64_t>(width_);
  HONE_CHECK(size <= bytes_.size(), "a page ends within its values");
  bits_ = BitReader(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
}

int64_t DeltaDecoder::next() {
  HONE_CHECK(given_ < count_, "a page has ", count_, " values, fewer than its levels need");
  if (given_++ == 0) return static_cast<int64_t>(value_);
  if (left_ == 0) begin_miniblock();
  --left_;
  value_ += min_delta_ + bits_.next(width_);
  return static_cast<int64_t>(value_);
}

}  // namespace hone::parquet
