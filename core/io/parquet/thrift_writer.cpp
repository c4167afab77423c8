#include "core/io/parquet/thrift_writer.h"

#include "core/base/check.h"

namespace hone::parquet {

void ThriftWriter::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
  out_ += static_cast<char>(value);
}

void ThriftWriter::header(int id, int type) {
  HONE_CHECK(id > last_ && id - last_ < 16, "parquet: field ", id, " after ", last_);
  out_ += static_cast<char>((id - last_) << 4 | type);
  last_ = id;
}

void ThriftWriter::list(int id, size_t count, int type) {
  header(id, 9);
  if (count < 15) {
    out_ += static_cast<char>(count << 4 | static_cast<size_t>(type));
    return;
  }
  out_ += static_cast<char>(0xF0 | type);
  varint(count);
}

void ThriftWriter::integer32(int id, int32_t value) {
  header(id, 5);
  zigzag(value);
}

void ThriftWriter::integer64(int id, int64_t value) {
  header(id, 6);
  zigzag(value);
}

void ThriftWriter::text(int id, std::string_view value) {
  header(id, 8);
  varint(value.size());
  out_ += value;
}

void ThriftWriter::empty_struct(int id) {
  structure(id, [] {});
}

void ThriftWriter::integers(int id, const std::vector<int32_t>& values) {
  list(id, values.size(), 5);
  for (const int32_t value : values) zigzag(value);
}

void ThriftWriter::texts(int id, const std::vector<std::string>& values) {
  list(id, values.size(), 8);
  for (const std::string& value : values) {
    varint(value.size());
    out_ += value;
  }
}

}  // namespace hone::parquet
