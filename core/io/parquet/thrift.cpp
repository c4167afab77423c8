#include "core/io/parquet/thrift.h"

namespace hone::parquet {
namespace {

enum ThriftType : uint8_t {
  kStop = 0,
  kTrue = 1,
  kFalse = 2,
  kInt8 = 3,
  kInt16 = 4,
  kInt32 = 5,
  kInt64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12
};

}  // namespace

uint8_t ThriftReader::byte() {
  if (at_ >= bytes_.size()) throw ThriftTruncated("the metadata end early");
  return static_cast<uint8_t>(bytes_[at_++]);
}

uint64_t ThriftReader::varint() {
  uint64_t out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t next = byte();
    out |= static_cast<uint64_t>(next & 0x7F) << shift;
    if ((next & 0x80) == 0) return out;
  }
  fail("the metadata have an integer of more than 64 bits");
}

int64_t ThriftReader::zigzag() {
  const uint64_t value = varint();
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

std::string_view ThriftReader::take(uint64_t size) {
  if (size > bytes_.size() - at_) throw ThriftTruncated("the metadata end early");
  const std::string_view out = bytes_.substr(at_, size);
  at_ += size;
  return out;
}

bool ThriftReader::next_field(int64_t& id) {
  const uint8_t header = byte();
  if (header == kStop) return false;
  type_ = header & 15;
  HONE_CHECK(type_ <= kStruct && type_ != kStop, "the metadata have a field of the unknown type ", int{type_});
  id = (header >> 4) != 0 ? id + (header >> 4) : zigzag();
  HONE_CHECK(id > INT16_MIN && id < INT16_MAX, "the metadata have a field of the number ", id);
  return true;
}

uint64_t ThriftReader::begin_list() {
  HONE_CHECK(type_ == kList || type_ == kSet, "the metadata have a value of type ", int{type_}, " in place of a list");
  const uint8_t header = byte();
  type_ = header & 15;
  const uint64_t count = (header >> 4) == 15 ? varint() : header >> 4;
  // Each element has at least one byte.
  if (count > bytes_.size() - at_) throw ThriftTruncated(concat("the metadata end within a list of ", count));
  return count;
}

bool ThriftReader::boolean() {
  HONE_CHECK(type_ == kTrue || type_ == kFalse, "the metadata have a value of type ", int{type_},
             " in place of a boolean");
  return type_ == kTrue;
}

int64_t ThriftReader::integer() {
  if (type_ == kInt8) return static_cast<int8_t>(byte());
  HONE_CHECK(type_ == kInt16 || type_ == kInt32 || type_ == kInt64, "the metadata have a value of type ", int{type_},
             " in place of an integer");
  return zigzag();
}

int32_t ThriftReader::int32() {
  const int64_t value = integer();
  HONE_CHECK(value >= INT32_MIN && value <= INT32_MAX, "the metadata have ", value, " in place of a 32-bit integer");
  return static_cast<int32_t>(value);
}

std::string_view ThriftReader::binary() {
  HONE_CHECK(type_ == kBinary, "the metadata have a value of type ", int{type_}, " in place of a text");
  return take(varint());
}

void ThriftReader::skip_elements(uint64_t count, uint8_t type, int depth) {
  if (count > bytes_.size() - at_) throw ThriftTruncated(concat("the metadata end within a list of ", count));
  // A boolean has a byte of its own in a list, but none in a field.
  const bool is_boolean = type == kTrue || type == kFalse;
  for (uint64_t i = 0; i < count; ++i) is_boolean ? void(byte()) : skip(type, depth + 1);
}

void ThriftReader::skip(uint8_t type, int depth) {
  HONE_CHECK(depth + depth_ <= kMaxDepth, "metadata nested more than ", kMaxDepth, " deep");
  switch (type) {
    case kTrue:
    case kFalse:
      return;
    case kInt8:
      byte();
      return;
    case kInt16:
    case kInt32:
    case kInt64:
      varint();
      return;
    case kDouble:
      take(8);
      return;
    case kBinary:
      take(varint());
      return;
    case kList:
    case kSet: {
      type_ = type;
      const uint64_t count = begin_list();
      skip_elements(count, type_, depth);
      return;
    }
    case kMap: {
      const uint64_t count = varint();
      if (count == 0) return;
      const uint8_t types = byte();
      if (count > bytes_.size() - at_) throw ThriftTruncated(concat("the metadata end within a map of ", count));
      for (uint64_t i = 0; i < count; ++i) {
        skip_elements(1, types >> 4, depth);
        skip_elements(1, types & 15, depth);
      }
      return;
    }
    case kStruct: {
      int64_t id = 0;
      while (next_field(id)) skip(type_, depth + 1);
      return;
    }
    default:
      fail("the metadata have a value of the unknown type ", int{type});
  }
}

}  // namespace hone::parquet
