// One class for each encoding of values (parquet-format's Encodings.md).
#include <bit>
#include <cstring>

#include "core/base/check.h"
#include "core/io/parquet/bits.h"
#include "core/io/parquet/values.h"

namespace hone::parquet {
namespace {

static_assert(std::endian::native == std::endian::little, "Parquet is little-endian");

constexpr size_t kMaxByteArrays = size_t{1} << 24;

template <class T>
T read_number(std::string_view bytes) {
  T out;
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

// Bytes of a value of fixed size; 0 for booleans and byte arrays.
size_t size_of(const Leaf& leaf) {
  switch (leaf.type) {
    case PhysicalType::int32:
    case PhysicalType::float32:
      return 4;
    case PhysicalType::int64:
    case PhysicalType::float64:
      return 8;
    case PhysicalType::int96:
      return 12;
    case PhysicalType::fixed_len_byte_array:
      return static_cast<size_t>(leaf.type_length);
    default:
      return 0;
  }
}

void set_fixed(PhysicalType type, std::string_view bytes, StoredValue& value) {
  switch (type) {
    case PhysicalType::int32:
      value.integer = read_number<int32_t>(bytes);
      break;
    case PhysicalType::int64:
      value.integer = read_number<int64_t>(bytes);
      break;
    case PhysicalType::float32:
      value.real = static_cast<double>(read_number<float>(bytes));
      break;
    case PhysicalType::float64:
      value.real = read_number<double>(bytes);
      break;
    default:
      value.bytes = bytes;
  }
}

std::string_view take(std::string_view& bytes, size_t size) {
  HONE_CHECK(size <= bytes.size(), "a page ends within its values");
  const std::string_view out = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return out;
}

class PlainFixed : public ValueDecoder {
 public:
  PlainFixed(const Leaf& leaf, std::string_view bytes) : type_(leaf.type), size_(size_of(leaf)), bytes_(bytes) {}
  void next(StoredValue& value) override { set_fixed(type_, take(bytes_, size_), value); }

 private:
  PhysicalType type_;
  size_t size_;
  std::string_view bytes_;
};

class PlainBytes : public ValueDecoder {
 public:
  explicit PlainBytes(std::string_view bytes) : bytes_(bytes) {}
  void next(StoredValue& value) override {
    const auto size = read_number<uint32_t>(take(bytes_, 4));
    value.bytes = take(bytes_, size);
  }

 private:
  std::string_view bytes_;
};

class PlainBooleans : public ValueDecoder {
 public:
  explicit PlainBooleans(std::string_view bytes) : bits_(bytes) {}
  void next(StoredValue& value) override { value.integer = static_cast<int64_t>(bits_.next(1)); }

 private:
  BitReader bits_;
};

class RunBooleans : public ValueDecoder {
 public:
  explicit RunBooleans(std::string_view bytes) {
    if (bytes.empty()) return;
    const auto size = read_number<uint32_t>(take(bytes, 4));
    runs_ = RunDecoder(take(bytes, size), 1);
  }
  void next(StoredValue& value) override { value.integer = runs_.next(); }

 private:
  RunDecoder runs_;
};

class DeltaIntegers : public ValueDecoder {
 public:
  DeltaIntegers(const Leaf& leaf, std::string_view bytes) : narrow_(leaf.type == PhysicalType::int32) {
    if (!bytes.empty()) deltas_ = DeltaDecoder(bytes);
  }
  void next(StoredValue& value) override {
    value.integer = deltas_.next();
    if (narrow_) value.integer = static_cast<int32_t>(value.integer);
  }

 private:
  bool narrow_;
  DeltaDecoder deltas_;
};

// Reads a stream of lengths and removes it from the bytes.
std::vector<uint32_t> take_lengths(std::string_view& bytes) {
  std::vector<uint32_t> out;
  if (bytes.empty()) return out;
  DeltaDecoder deltas(bytes);
  HONE_CHECK(deltas.count() <= kMaxByteArrays, "a page has ", deltas.count(), " texts; at most ", kMaxByteArrays,
             " are possible");
  for (uint64_t i = 0; i < deltas.count(); ++i) {
    const int64_t length = deltas.next();
    HONE_CHECK(length >= 0 && length <= INT32_MAX, "a page has a text of ", length, " bytes");
    out.push_back(static_cast<uint32_t>(length));
  }
  bytes = deltas.rest();
  return out;
}

class DeltaLengthBytes : public ValueDecoder {
 public:
  explicit DeltaLengthBytes(std::string_view bytes) : lengths_(take_lengths(bytes)), bytes_(bytes) {}
  void next(StoredValue& value) override {
    HONE_CHECK(next_ < lengths_.size(), "a page has ", lengths_.size(), " values, fewer than its levels need");
    value.bytes = take(bytes_, lengths_[next_++]);
  }

 private:
  std::vector<uint32_t> lengths_;
  std::string_view bytes_;
  size_t next_ = 0;
};

// Each text begins with a part of the one before it.
class DeltaBytes : public ValueDecoder {
 public:
  DeltaBytes(const Leaf& leaf, std::string_view bytes)
      : size_(size_of(leaf)), prefixes_(take_lengths(bytes)), suffixes_(bytes) {}
  void next(StoredValue& value) override {
    HONE_CHECK(next_ < prefixes_.size(), "a page has ", prefixes_.size(), " values, fewer than its levels need");
    const size_t prefix = prefixes_[next_++];
    HONE_CHECK(prefix <= text_.size(), "a text shares ", prefix, " bytes with one of ", text_.size());
    StoredValue suffix;
    suffixes_.next(suffix);
    text_.resize(prefix);
    text_ += suffix.bytes;
    HONE_CHECK(size_ == 0 || text_.size() == size_, "a value has ", text_.size(), " bytes, the schema says ", size_);
    value.bytes = text_;
  }

 private:
  size_t size_;  // of every value; 0: any
  std::vector<uint32_t> prefixes_;
  DeltaLengthBytes suffixes_;
  size_t next_ = 0;
  std::string text_;
};

// The first bytes of all values, then the second bytes, and so on.
class SplitBytes : public ValueDecoder {
 public:
  SplitBytes(const Leaf& leaf, std::string_view bytes)
      : type_(leaf.type), bytes_(bytes), count_(bytes.size() / size_of(leaf)), value_(size_of(leaf), '\0') {
    HONE_CHECK(bytes.size() % value_.size() == 0, "a page of ", bytes.size(), " bytes has values of ", value_.size());
  }
  void next(StoredValue& value) override {
    HONE_CHECK(next_ < count_, "a page has ", count_, " values, fewer than its levels need");
    for (size_t i = 0; i < value_.size(); ++i) value_[i] = bytes_[i * count_ + next_];
    ++next_;
    set_fixed(type_, value_, value);
  }

 private:
  PhysicalType type_;
  std::string_view bytes_;
  size_t count_, next_ = 0;
  std::string value_;
};

[[noreturn]] void refuse(Encoding encoding, const Leaf& leaf) {
  fail("column ", leaf.path, " has the encoding ", static_cast<int>(encoding), ", which its type cannot have");
}

}  // namespace

std::unique_ptr<ValueDecoder> make_value_decoder(Encoding encoding, const Leaf& leaf, std::string_view bytes) {
  const bool is_boolean = leaf.type == PhysicalType::boolean, is_text = leaf.type == PhysicalType::byte_array;
  const bool is_integer = leaf.type == PhysicalType::int32 || leaf.type == PhysicalType::int64;
  switch (encoding) {
    case Encoding::plain:
      if (is_boolean) return std::make_unique<PlainBooleans>(bytes);
      if (is_text) return std::make_unique<PlainBytes>(bytes);
      return std::make_unique<PlainFixed>(leaf, bytes);
    case Encoding::rle:
      if (is_boolean) return std::make_unique<RunBooleans>(bytes);
      break;
    case Encoding::delta_binary_packed:
      if (is_integer) return std::make_unique<DeltaIntegers>(leaf, bytes);
      break;
    case Encoding::delta_length_byte_array:
      if (is_text) return std::make_unique<DeltaLengthBytes>(bytes);
      break;
    case Encoding::delta_byte_array:
      if (is_text || leaf.type == PhysicalType::fixed_len_byte_array) return std::make_unique<DeltaBytes>(leaf, bytes);
      break;
    case Encoding::byte_stream_split:
      if (size_of(leaf) > 0 && leaf.type != PhysicalType::int96) return std::make_unique<SplitBytes>(leaf, bytes);
      break;
    default:
      break;
  }
  refuse(encoding, leaf);
}

}  // namespace hone::parquet
