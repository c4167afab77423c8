#include "core/io/gguf/gguf_writer.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/parallel_for.h"
#include "core/device/dtype.h"
#include "core/device/float16.h"
#include "core/io/file.h"
#include "core/io/gguf/gguf.h"

namespace hone {
namespace {

constexpr uint64_t alignment = 32;
// Value types of the format.
constexpr uint32_t type_u32 = 4, type_i32 = 5, type_f32 = 6, type_bool = 7, type_string = 8, type_array = 9;

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

uint64_t padded(uint64_t size) { return (size + alignment - 1) / alignment * alignment; }

template <class T>
void put_array(std::string& out, uint32_t type, const std::vector<T>& values) {
  put(out, type);
  put(out, uint64_t{values.size()});
  for (const T value : values) put(out, value);
}

}  // namespace

GgufWriter::GgufWriter(std::string architecture) : architecture_(std::move(architecture)) {
  set_text("general.architecture", architecture_);
}

void GgufWriter::begin_key(std::string_view key, uint32_t type) {
  HONE_CHECK(std::ranges::find(names_, key) == names_.end(), "gguf: key '", key, "' is set twice");
  names_.emplace_back(key);
  put_text(keys_, key);
  put(keys_, type);
}

void GgufWriter::set_u32(std::string_view key, int64_t value) {
  HONE_CHECK(value >= 0 && value <= UINT32_MAX, "gguf: key '", key, "' is ", value, ", it must fit into 32 bits");
  begin_key(key, type_u32);
  put(keys_, static_cast<uint32_t>(value));
}

void GgufWriter::set_f32(std::string_view key, double value) {
  begin_key(key, type_f32);
  put(keys_, static_cast<float>(value));
}

void GgufWriter::set_flag(std::string_view key, bool value) {
  begin_key(key, type_bool);
  put(keys_, static_cast<uint8_t>(value));
}

void GgufWriter::set_text(std::string_view key, std::string_view value) {
  begin_key(key, type_string);
  put_text(keys_, value);
}

void GgufWriter::set_texts(std::string_view key, const std::vector<std::string>& values) {
  begin_key(key, type_array);
  put(keys_, type_string);
  put(keys_, uint64_t{values.size()});
  for (const std::string& value : values) put_text(keys_, value);
}

void GgufWriter::set_i32s(std::string_view key, const std::vector<int32_t>& values) {
  begin_key(key, type_array);
  put_array(keys_, type_i32, values);
}

void GgufWriter::set_f32s(std::string_view key, const std::vector<float>& values) {
  begin_key(key, type_array);
  put_array(keys_, type_f32, values);
}

void GgufWriter::add_tensor(std::string name, const GgufType& type, std::vector<int64_t> shape,
                            std::function<std::string()> make) {
  HONE_CHECK(!shape.empty() && shape.size() <= 4 && shape.back() % type.block_size == 0, "gguf: tensor '", name,
             "' cannot be written as ", type.name);
  uint64_t elements = 1;
  for (const int64_t dim : shape) elements *= static_cast<uint64_t>(dim);
  const uint64_t bytes = elements / static_cast<uint64_t>(type.block_size) * static_cast<uint64_t>(type.block_bytes);
  tensors_.push_back({std::move(name), &type, std::move(shape), std::move(make), bytes});
}

void GgufWriter::write(const std::filesystem::path& path) const {
  std::string header(gguf_magic);
  put(header, uint32_t{3});
  put(header, uint64_t{tensors_.size()});
  put(header, uint64_t{names_.size()});
  header += keys_;
  uint64_t offset = 0;
  for (const PlannedTensor& tensor : tensors_) {
    put_text(header, tensor.name);
    put(header, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) put(header, static_cast<uint64_t>(tensor.shape[i]));
    put(header, tensor.type->id);
    put(header, offset);
    offset += padded(tensor.bytes);
  }
  header.resize(padded(header.size()), '\0');
  FileWriter file(path);
  file.write(header);
  for (const PlannedTensor& tensor : tensors_) {
    std::string bytes = tensor.make();
    HONE_CHECK(bytes.size() == tensor.bytes, "gguf: tensor '", tensor.name, "' has ", bytes.size(), " bytes, not ",
               tensor.bytes);
    bytes.resize(padded(bytes.size()), '\0');
    file.write(bytes);
  }
  file.sync();
}

std::string encode_gguf(const GgufType& type, std::span<const float> values) {
  const auto block = static_cast<size_t>(type.block_size), block_bytes = static_cast<size_t>(type.block_bytes);
  HONE_CHECK(values.size() % block == 0, "gguf: ", values.size(), " numbers are no whole blocks of ", type.name);
  void (*encode)(const float*, uint8_t*) = nullptr;
  const std::string_view name = type.name;
  if (name == "F32") encode = [](const float* from, uint8_t* to) { std::memcpy(to, from, 4); };
  if (name == "F16")
    encode = [](const float* from, uint8_t* to) {
      const f16 half = to_f16(*from);
      std::memcpy(to, &half, 2);
    };
  if (name == "BF16")
    encode = [](const float* from, uint8_t* to) {
      const bf16 half = to_bf16(*from);
      std::memcpy(to, &half, 2);
    };
  if (name == "Q8_0")
    encode = [](const float* from, uint8_t* to) { quantize_q8_0(std::span<const float, 32>(from, 32), to); };
  HONE_CHECK(encode, "gguf: writing ", name, " is not supported; supported: F32, F16, BF16, Q8_0");
  std::string out(values.size() / block * block_bytes, '\0');
  auto* to = reinterpret_cast<uint8_t*>(out.data());
  parallel_for(static_cast<int64_t>(values.size() / block), 4096, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      encode(values.data() + i * block, to + i * block_bytes);
  });
  return out;
}

}  // namespace hone
