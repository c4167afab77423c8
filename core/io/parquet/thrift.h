#pragma once
// Reads Thrift's compact protocol, in which Parquet writes its metadata. Every size is compared with the bytes that are
// left, and nesting is limited.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace hone::parquet {

// The bytes end inside a value. A reader of page headers then tries again with more bytes.
class ThriftTruncated : public Error {
 public:
  using Error::Error;
};

class ThriftReader {
 public:
  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

  // Reads a struct: calls handle(field id) for each field. The handler reads the value with one call and returns true,
  // or returns false, and the value is skipped.
  template <class Handle>
  void each_field(Handle handle) {
    enter();
    int64_t id = 0;
    while (next_field(id))
      if (!handle(id)) skip(type_, 0);
    leave();
  }
  // Reads a list: calls handle() for each element.
  template <class Handle>
  void each_element(Handle handle) {
    const uint64_t count = begin_list();
    const uint8_t element = type_;
    enter();
    for (uint64_t i = 0; i < count; ++i) {
      type_ = element;
      handle();
    }
    leave();
  }
  bool boolean();
  int64_t integer();  // i8, i16, i32 or i64
  int32_t int32();    // an integer that fits
  std::string_view binary();

  size_t position() const { return at_; }

 private:
  static constexpr int kMaxDepth = 32;

  void enter() { HONE_CHECK(++depth_ <= kMaxDepth, "metadata nested more than ", kMaxDepth, " deep"); }
  void leave() { --depth_; }
  bool next_field(int64_t& id);
  uint64_t begin_list();
  uint8_t byte();
  uint64_t varint();
  int64_t zigzag();
  std::string_view take(uint64_t size);
  void skip(uint8_t type, int depth);
  void skip_elements(uint64_t count, uint8_t type, int depth);

  std::string_view bytes_;
  size_t at_ = 0;
  uint8_t type_ = 0;  // of the value that comes next
  int depth_ = 0;
};

}  // namespace hone::parquet
