#pragma once
// Writes Thrift's compact protocol, for the metadata of Parquet files.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone::parquet {

class ThriftWriter {
 public:
  // Fields of the current struct, in the order of their numbers.
  void integer32(int id, int32_t value);
  void integer64(int id, int64_t value);
  void text(int id, std::string_view value);
  void empty_struct(int id);
  template <class Body>
  void structure(int id, Body body) {
    header(id, 12);
    element(body);
  }
  // A list of `count` structs; body(i) writes the fields of one.
  template <class Body>
  void structures(int id, size_t count, Body body) {
    list(id, count, 12);
    for (size_t i = 0; i < count; ++i) element([&] { body(i); });
  }
  void integers(int id, const std::vector<int32_t>& values);
  void texts(int id, const std::vector<std::string>& values);
  // Ends the outermost struct.
  std::string finish() {
    out_ += '\0';
    return std::move(out_);
  }

 private:
  template <class Body>
  void element(Body body) {
    const int before = last_;
    last_ = 0;
    body();
    out_ += '\0';
    last_ = before;
  }
  void header(int id, int type);
  void list(int id, size_t count, int type);
  void varint(uint64_t value);
  void zigzag(int64_t value) {
    const uint64_t twice = static_cast<uint64_t>(value) << 1;
    varint(value < 0 ? ~twice : twice);
  }
  std::string out_;
  int last_ = 0;  // the number of the field before, in the current struct
};

}  // namespace hone::parquet
