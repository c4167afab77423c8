#include "core/io/gguf/gguf.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include "core/base/suggest.h"
#include "core/io/file.h"
#include "core/io/mapped_file.h"

namespace hone {
namespace {

constexpr uint64_t default_alignment = 32, max_alignment = uint64_t{1} << 20;
constexpr uint64_t max_key_bytes = 65535, max_tensor_name_bytes = 63;  // as llama.cpp
constexpr uint64_t max_array_elements = uint64_t{1} << 23;             // of all keys: each takes up to 50 bytes here
constexpr int max_nesting = 4;
constexpr uint64_t smallest_key = 8 + 1 + 4 + 1, smallest_tensor = 8 + 1 + 4 + 4 + 8;

enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
constexpr uint32_t num_value_types = 13;

// Bytes of a value; the fewest of a string or an array.
uint64_t bytes_of(ValueType type) {
  constexpr uint64_t sizes[num_value_types] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return sizes[static_cast<size_t>(type)];
}

// A 32-bit float as the double of its shortest decimal form. Other programs write 1e-05, not 9.999999747378752e-06.
double widen(float value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  double out = 0;
  std::from_chars(text, end, out);
  return error == std::errc() ? out : static_cast<double>(value);
}

// Reads values in order. `what` names the place in errors.
class Cursor {
 public:
  Cursor(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}
  uint64_t position() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  std::string_view take(uint64_t count, std::string_view what) {
    HONE_CHECK(count <= left(), source_, ": ", what, ": ", count, " bytes at byte ", at_, ", but the file ends ",
               left(), " bytes later: it is cut short or damaged");
    const std::string_view out = bytes_.substr(at_, count);
    at_ += count;
    return out;
  }
  template <class T>
  T number(std::string_view what) {
    T out;
    std::memcpy(&out, take(sizeof(T), what).data(), sizeof(T));
    return out;
  }
  std::string_view text(std::string_view what, uint64_t most = UINT64_MAX) {
    const auto length = number<uint64_t>(what);
    HONE_CHECK(length <= most, source_, ": ", what, ": a string of ", length, " bytes, at most ", most, " are allowed");
    return take(length, what);
  }
  // The name of a key or tensor: printable text, so that errors can show it.
  std::string name(std::string_view what, uint64_t most) {
    std::string out(text(what, most));
    HONE_CHECK(!out.empty(), source_, ": ", what, " has an empty name");
    HONE_CHECK(std::ranges::none_of(out, [](char c) { return static_cast<unsigned char>(c) < 0x20; }), source_, ": ",
               what, " has a name with control characters");
    return out;
  }
  ValueType value_type(std::string_view what) {
    const auto type = number<uint32_t>(what);
    HONE_CHECK(type < num_value_types, source_, ": ", what, ": value type ", type, " is unknown; known are 0 to ",
               num_value_types - 1);
    return static_cast<ValueType>(type);
  }
  Json value(ValueType type, const std::string& what, int nesting = 0);

 private:
  Json array(const std::string& what, int nesting);

  std::string_view bytes_;
  const std::string& source_;
  uint64_t at_ = 0, array_elements_ = 0;
};

Json Cursor::array(const std::string& what, int nesting) {
  HONE_CHECK(nesting < max_nesting, source_, ": ", what, ": arrays are nested deeper than ", max_nesting);
  const ValueType type = value_type(what);
  const auto count = number<uint64_t>(what);
  HONE_CHECK(count <= left() / bytes_of(type), source_, ": ", what, ": an array of ", count, " values, but only ",
             left(), " bytes are left in the file");
  array_elements_ += count;
  HONE_CHECK(array_elements_ <= max_array_elements, source_, ": ", what, ": the arrays of the file have more than ",
             max_array_elements, " values");
  JsonArray out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) out.push_back(value(type, what, nesting + 1));
  return out;
}

Json Cursor::value(ValueType type, const std::string& what, int nesting) {
  switch (type) {
    case ValueType::u8:
      return int64_t{number<uint8_t>(what)};
    case ValueType::i8:
      return int64_t{number<int8_t>(what)};
    case ValueType::u16:
      return int64_t{number<uint16_t>(what)};
    case ValueType::i16:
      return int64_t{number<int16_t>(what)};
    case ValueType::u32:
      return int64_t{number<uint32_t>(what)};
    case ValueType::i32:
      return int64_t{number<int32_t>(what)};
    case ValueType::f32:
      return widen(number<float>(what));
    case ValueType::boolean: {
      const auto byte = number<uint8_t>(what);
      HONE_CHECK(byte <= 1, source_, ": ", what, ": a boolean is ", int{byte}, ", it must be 0 or 1");
      return byte == 1;
    }
    case ValueType::string:
      return text(what);
    case ValueType::array:
      return array(what, nesting);
    case ValueType::u64: {
      const auto value = number<uint64_t>(what);
      HONE_CHECK(value <= INT64_MAX, source_, ": ", what, ": ", value, " is too large; at most ", INT64_MAX);
      return static_cast<int64_t>(value);
    }
    case ValueType::i64:
      return number<int64_t>(what);
    case ValueType::f64:
      return number<double>(what);
  }
  fail(source_, ": ", what, ": unknown value type");
}

void check_version(Cursor& cursor, std::string_view bytes, const std::string& source) {
  HONE_CHECK(bytes.starts_with(gguf_magic), source, ": not a GGUF file: it does not begin with the letters GGUF");
  cursor.take(4, "magic");
  const auto version = cursor.number<uint32_t>("version");
  HONE_CHECK((version & 0xffffu) != 0, source,
             ": a big-endian GGUF file; only little-endian ones are supported (convert it with llama.cpp's "
             "gguf_convert_endian.py)");
  HONE_CHECK(version == 2 || version == 3, source, ": GGUF version ", version,
             "; versions 2 and 3 are supported (convert the model again with llama.cpp)");
}

Json read_metadata(Cursor& cursor, uint64_t count, const std::string& source) {
  JsonObject out;
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = cursor.name(concat("key ", i), max_key_bytes);
    const std::string what = "key '" + key + "'";
    HONE_CHECK(seen.insert(key).second, source, ": ", what, " appears twice");
    const ValueType type = cursor.value_type(what);
    out.emplace_back(std::move(key), cursor.value(type, what));
  }
  return out;
}

uint64_t alignment_of(const Json& metadata, const std::string& source) {
  const Json* given = metadata.find("general.alignment");
  if (!given) return default_alignment;
  const int64_t value = given->is_int() ? given->as_int() : 0;
  HONE_CHECK(
      value > 0 && std::has_single_bit(static_cast<uint64_t>(value)) && static_cast<uint64_t>(value) <= max_alignment,
      source, ": key 'general.alignment' is ", given->dump(), "; it must be a power of two up to ", max_alignment);
  return static_cast<uint64_t>(value);
}

struct PlacedTensor {
  GgufTensor tensor;
  uint64_t offset = 0, size = 0;  // within the data
};

PlacedTensor read_tensor(Cursor& cursor, uint64_t index, const std::string& source) {
  PlacedTensor out;
  GgufTensor& tensor = out.tensor;
  tensor.name = cursor.name(concat("tensor ", index), max_tensor_name_bytes);
  const std::string what = "tensor '" + tensor.name + "'", place = source + ": " + what;
  const auto rank = cursor.number<uint32_t>(what);
  HONE_CHECK(rank <= 4, place, ": ", rank, " dims, at most 4 are supported");
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto dim = cursor.number<uint64_t>(what);
    HONE_CHECK(dim >= 1 && dim <= INT64_MAX, place, ": dim ", i, " is ", dim, "; it must be 1 or more");
    HONE_CHECK(!__builtin_mul_overflow(elements, dim, &elements) && elements < uint64_t{1} << 60, place,
               ": the shape overflows");
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
  }
  if (tensor.shape.empty()) tensor.shape = {1};
  const auto id = cursor.number<uint32_t>(what);
  tensor.type = find_gguf_type(id);
  HONE_CHECK(tensor.type, place, ": tensor type ", id, " is unknown; supported: ", supported_gguf_types());
  HONE_CHECK(tensor.columns() % tensor.type->block_size == 0, place, ": rows of ", tensor.columns(),
             " are not a multiple of the ", tensor.type->block_size, " elements of a ", tensor.type->name, " block");
  out.offset = cursor.number<uint64_t>(what);
  const uint64_t blocks = elements / static_cast<uint64_t>(tensor.type->block_size);
  HONE_CHECK(!__builtin_mul_overflow(blocks, static_cast<uint64_t>(tensor.type->block_bytes), &out.size), place,
             ": the shape overflows");
  return out;
}

void check_overlap(const std::vector<PlacedTensor>& tensors, const std::string& source) {
  std::vector<const PlacedTensor*> order;
  for (const PlacedTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, &PlacedTensor::offset);
  for (size_t i = 1; i < order.size(); ++i)
    HONE_CHECK(order[i]->offset >= order[i - 1]->offset + order[i - 1]->size, source, ": tensor '",
               order[i]->tensor.name, "' at byte ", order[i]->offset, " of the data overlaps '",
               order[i - 1]->tensor.name, "'");
}

// Gives each tensor its bytes.
void place_tensors(std::vector<PlacedTensor>& tensors, std::string_view bytes, uint64_t header, uint64_t alignment,
                   const std::string& source) {
  if (tensors.empty()) return;
  const uint64_t begin = (header + alignment - 1) / alignment * alignment;
  HONE_CHECK(begin <= bytes.size(), source, ": the data begins at byte ", begin, ", but the file has ", bytes.size(),
             ": it is cut short");
  const uint64_t available = bytes.size() - begin;
  for (PlacedTensor& placed : tensors) {
    const std::string place = source + ": tensor '" + placed.tensor.name + "'";
    HONE_CHECK(placed.offset % alignment == 0, place, ": its offset ", placed.offset, " is not a multiple of ",
               alignment, " (general.alignment)");
    HONE_CHECK(placed.offset <= available && placed.size <= available - placed.offset, place, ": ", placed.size,
               " bytes at byte ", placed.offset, " of ", available, " of data: the file is cut short");
    placed.tensor.bytes = bytes.substr(begin + placed.offset, placed.size);
  }
  check_overlap(tensors, source);
}

}  // namespace

int64_t GgufTensor::rows() const {
  int64_t out = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) out *= shape[i];
  return out;
}

std::string_view GgufTensor::row_bytes(int64_t row) const {
  const auto size = static_cast<size_t>(columns() / type->block_size * type->block_bytes);
  return bytes.substr(static_cast<size_t>(row) * size, size);
}

GgufContents parse_gguf(std::string_view bytes, const std::string& source) {
  Cursor cursor(bytes, source);
  check_version(cursor, bytes, source);
  const auto num_tensors = cursor.number<uint64_t>("number of tensors");
  const auto num_keys = cursor.number<uint64_t>("number of keys");
  HONE_CHECK(num_keys <= cursor.left() / smallest_key, source, ": ", num_keys, " keys do not fit into the file's ",
             bytes.size(), " bytes");
  HONE_CHECK(num_tensors <= cursor.left() / smallest_tensor, source, ": ", num_tensors,
             " tensors do not fit into the file's ", bytes.size(), " bytes");
  GgufContents out;
  out.metadata = read_metadata(cursor, num_keys, source);
  std::vector<PlacedTensor> tensors;
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    tensors.push_back(read_tensor(cursor, i, source));
    HONE_CHECK(seen.insert(tensors.back().tensor.name).second, source, ": tensor '", tensors.back().tensor.name,
               "' appears twice");
  }
  place_tensors(tensors, bytes, cursor.position(), alignment_of(out.metadata, source), source);
  for (PlacedTensor& placed : tensors) out.tensors.push_back(std::move(placed.tensor));
  return out;
}

struct GgufReader::Impl {
  std::string source;
  std::vector<std::unique_ptr<MappedFile>> files;
};

namespace {

// "model-00001-of-00003.gguf" with another number.
std::filesystem::path shard_path(const std::filesystem::path& first, int64_t index, int64_t count) {
  const auto padded = [](int64_t number) {
    const std::string text = std::to_string(number);
    return std::string(5 - std::min<size_t>(text.size(), 5), '0') + text;
  };
  const auto ending = [&](int64_t number) { return concat("-", padded(number), "-of-", padded(count), ".gguf"); };
  const std::string name = first.filename().string();
  HONE_CHECK(name.ends_with(ending(1)), first.string(), ": the first of ", count,
             " files of a split model must be named NAME", ending(1));
  return first.parent_path() / (name.substr(0, name.size() - ending(1).size()) + ending(index + 1));
}

}  // namespace

GgufReader::GgufReader(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  impl_->source = path.string();
  const auto open = [&](const std::filesystem::path& file) {
    impl_->files.push_back(std::make_unique<MappedFile>(file));
    return parse_gguf(impl_->files.back()->view(), file.string());
  };
  contents_ = open(path);
  const int64_t count = integer("split.count", 1), number = integer("split.no", 0);
  if (count <= 1) return;
  HONE_CHECK(count <= 99999, impl_->source, ": key 'split.count' is ", count, "; at most 99999");
  HONE_CHECK(number == 0, impl_->source, ": file ", number + 1, " of a model of ", count,
             " files; give the first one, whose name has 00001-of");
  for (int64_t i = 1; i < count; ++i) {
    const std::filesystem::path file = shard_path(path, i, count);
    GgufContents more = open(file);
    const Json* its_number = more.metadata.find("split.no");
    HONE_CHECK(its_number && its_number->is_int() && its_number->as_int() == i, file.string(),
               ": key 'split.no' must be ", i, ": the file belongs to another model or place");
    for (GgufTensor& tensor : more.tensors) {
      HONE_CHECK(!find_tensor(tensor.name), file.string(), ": tensor '", tensor.name, "' is in another file too");
      contents_.tensors.push_back(std::move(tensor));
    }
  }
  const int64_t total = integer("split.tensors.count", static_cast<int64_t>(tensors().size()));
  HONE_CHECK(total == static_cast<int64_t>(tensors().size()), impl_->source, ": the ", count, " files have ",
             tensors().size(), " tensors; key 'split.tensors.count' says ", total);
}
GgufReader::~GgufReader() = default;
GgufReader::GgufReader(GgufReader&&) noexcept = default;

const std::string& GgufReader::source() const { return impl_->source; }

const GgufTensor* GgufReader::find_tensor(std::string_view name) const {
  const auto found = std::ranges::find(contents_.tensors, name, &GgufTensor::name);
  return found == contents_.tensors.end() ? nullptr : &*found;
}

std::string GgufReader::text(std::string_view key, std::string_view fallback) const {
  const Json* value = find(key);
  return value ? value->as_string(concat(source(), ": key '", key, "'")) : std::string(fallback);
}

bool GgufReader::flag(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  return value ? value->as_bool(concat(source(), ": key '", key, "'")) : fallback;
}

int64_t GgufReader::integer(std::string_view key, int64_t fallback) const {
  const Json* value = find(key);
  return value ? value->as_int(concat(source(), ": key '", key, "'")) : fallback;
}

double GgufReader::number(std::string_view key, double fallback) const {
  const Json* value = find(key);
  return value ? value->as_double(concat(source(), ": key '", key, "'")) : fallback;
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  return path.extension() == ".gguf" || read_beginning(path, gguf_magic.size()) == gguf_magic;
}

}  // namespace hone
