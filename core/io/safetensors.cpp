#include "core/io/safetensors.h"

#include <algorithm>
#include <utility>

#include "core/base/suggest.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/mapped_file.h"

namespace hone {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // as the format's reference implementation
constexpr std::pair<std::string_view, DType> kDtypes[] = {
    {"F32", DType::f32}, {"BF16", DType::bf16}, {"F16", DType::f16}, {"F64", DType::f64},
    {"I32", DType::i32}, {"I64", DType::i64},   {"U8", DType::u8},   {"BOOL", DType::boolean}};

DType dtype_named(const std::string& name, const std::string& what) {
  std::string known;
  for (const auto& [word, dtype] : kDtypes) {
    if (word == name) return dtype;
    known += concat(known.empty() ? "" : ", ", word);
  }
  fail(what, ": dtype ", name, " is not supported; supported: ", known);
}

std::string_view safetensors_name(DType dtype) {
  return std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const auto& pair) { return pair.second == dtype; })
      ->first;
}

struct Entry {
  DType dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;  // within the file's bytes
};

struct Header {
  std::map<std::string, Entry, std::less<>> entries;
  std::map<std::string, std::string> metadata;
};

Entry parse_entry(const Json& json, const std::string& what, uint64_t data_begin, uint64_t data_size) {
  Entry entry{dtype_named(json.at("dtype", what).as_string(what + ": dtype"), what), {}, 0, 0};
  uint64_t bytes = size_of(entry.dtype);
  for (const Json& dim : json.at("shape", what).as_array(what + ": shape")) {
    entry.shape.push_back(dim.as_int(what + ": shape"));
    HONE_CHECK(entry.shape.back() >= 0, what, ": a dim of the shape is negative: ", entry.shape.back());
    HONE_CHECK(
        !__builtin_mul_overflow(bytes, static_cast<uint64_t>(entry.shape.back()), &bytes) && bytes < uint64_t{1} << 62,
        what, ": the shape overflows");
  }
  HONE_CHECK(entry.shape.size() <= 4, what, ": ", entry.shape.size(), " dims, at most 4 are supported");
  if (entry.shape.empty()) entry.shape = {1};

  const JsonArray& offsets = json.at("data_offsets", what).as_array(what + ": data_offsets");
  HONE_CHECK(offsets.size() == 2, what, ": data_offsets has ", offsets.size(), " members, expected 2");
  const int64_t begin = offsets[0].as_int(what + ": data_offsets"), end = offsets[1].as_int(what + ": data_offsets");
  HONE_CHECK(begin >= 0 && begin <= end, what, ": data_offsets [", begin, ", ", end, "] run backwards");
  HONE_CHECK(static_cast<uint64_t>(end) <= data_size, what, ": ends at byte ", end, " of ", data_size,
             " of data: the file is cut short");
  HONE_CHECK(static_cast<uint64_t>(end - begin) == bytes, what, ": ", end - begin, " bytes of data, its shape needs ",
             bytes);
  entry.begin = data_begin + static_cast<uint64_t>(begin);
  entry.end = data_begin + static_cast<uint64_t>(end);
  return entry;
}

// Checks that every byte of the data belongs to exactly one tensor, as the format requires.
void check_coverage(const Header& header, uint64_t data_begin, uint64_t file_size, const std::string& source) {
  std::vector<std::pair<const std::string*, const Entry*>> order;
  for (const auto& [name, entry] : header.entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  uint64_t at = data_begin;
  for (const auto& [name, entry] : order) {
    HONE_CHECK(entry->begin >= at, source, ": tensor '", *name, "' overlaps the one before it");
    HONE_CHECK(entry->begin == at, source, ": ", entry->begin - at, " bytes before tensor '", *name,
               "' belong to none");
    at = entry->end;
  }
  HONE_CHECK(at == file_size, source, ": the last ", file_size - at, " bytes belong to no tensor");
}

Header parse_header(std::string_view bytes, const std::string& source) {
  HONE_CHECK(bytes.size() >= 8, source, ": ", bytes.size(), " bytes are no safetensors file");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
  HONE_CHECK(length <= bytes.size() - 8, source, ": a header of ", length, " bytes in a file of ", bytes.size());
  HONE_CHECK(length <= kMaxHeader, source, ": a header of ", length, " bytes, at most ", kMaxHeader);
  const Json json = parse_json(bytes.substr(8, length), source + ": header");
  const uint64_t data_begin = 8 + length;
  Header header;
  for (const auto& [name, member] : json.as_object(source + ": header")) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : member.as_object(source + ": __metadata__"))
        header.metadata[key] = value.as_string(source + ": __metadata__");
      continue;
    }
    const std::string what = source + ": tensor '" + name + "'";
    HONE_CHECK(header.entries.emplace(name, parse_entry(member, what, data_begin, bytes.size() - data_begin)).second,
               what, " appears twice");
  }
  check_coverage(header, data_begin, bytes.size(), source);
  return header;
}

}  // namespace

std::vector<std::string> check_safetensors(std::string_view bytes, std::string_view source) {
  std::vector<std::string> out;
  for (const auto& [name, entry] : parse_header(bytes, std::string(source)).entries) out.push_back(name);
  return out;
}

struct SafetensorsReader::Impl {
  struct TensorPlace {
    const MappedFile* file;
    Entry entry;
  };
  std::string source;
  std::vector<std::unique_ptr<MappedFile>> files;
  std::map<std::string, TensorPlace, std::less<>> places;
  std::map<std::string, std::string> metadata;

  void open_file(const std::filesystem::path& path) {
    const MappedFile* file = files.emplace_back(std::make_unique<MappedFile>(path)).get();
    Header header = parse_header(file->view(), path.string());
    metadata.merge(header.metadata);
    for (auto& [name, entry] : header.entries)
      HONE_CHECK(places.emplace(name, TensorPlace{file, std::move(entry)}).second, path.string(), ": tensor '", name,
                 "' is in another shard too");
  }

  void open_index(const std::filesystem::path& path) {
    const Json index = parse_json(read_file(path), path.string());
    std::map<std::string, std::vector<std::string>> names_of;  // by file
    for (const auto& [name, file] : index.at("weight_map", path.string()).as_object(path.string() + ": weight_map"))
      names_of[file.as_string(path.string() + ": weight_map")].push_back(name);
    for (const auto& [file, names] : names_of) {
      HONE_CHECK(std::filesystem::path(file).filename() == file && file != "..", path.string(), ": weight_map: '", file,
                 "' is no file beside it");
      open_file(path.parent_path() / file);
      for (const std::string& name : names)
        HONE_CHECK(places.contains(name) && places.find(name)->second.file == files.back().get(),
                   (path.parent_path() / file).string(), ": tensor '", name, "' is missing, the index says it is here");
    }
  }
};

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path)) {
    constexpr const char* names[] = {"model.safetensors", "model.safetensors.index.json", "model.safetensors.gz"};
    const auto found = std::find_if(std::begin(names), std::end(names),
                                    [&](const char* name) { return std::filesystem::exists(path / name); });
    HONE_CHECK(found != std::end(names), path.string(),
               ": no model.safetensors in the folder, nor model.safetensors.index.json");
    file = path / *found;
  }
  impl_->source = file.string();
  if (file.extension() == ".json")
    impl_->open_index(file);
  else
    impl_->open_file(file);
}
SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> out;
  for (const auto& [name, place] : impl_->places) out.push_back(name);
  return out;
}

bool SafetensorsReader::contains(std::string_view name) const { return impl_->places.contains(name); }

Tensor SafetensorsReader::at(std::string_view name) const {
  const auto found = impl_->places.find(name);
  HONE_CHECK(found != impl_->places.end(), impl_->source, ": no tensor '", name, "'", suggestion(name, names()));
  const auto& [file, entry] = found->second;
  // Tensor has no read-only form. The mapping is read-only, so a stray write faults.
  return Tensor(const_cast<char*>(file->view().data()) + entry.begin, entry.dtype, DeviceKind::cpu, entry.shape);
}

const std::map<std::string, std::string>& SafetensorsReader::metadata() const { return impl_->metadata; }

namespace {

uint64_t bytes_of(const LazyTensor& tensor) {
  uint64_t out = size_of(tensor.dtype);
  for (const int64_t dim : tensor.shape) out *= static_cast<uint64_t>(dim);
  return out;
}

void write_shard(const std::filesystem::path& path, std::span<const LazyTensor> tensors,
                 const std::map<std::string, std::string>& metadata) {
  JsonObject header, words;
  for (const auto& [key, value] : metadata) words.emplace_back(key, value);
  if (!words.empty()) header.emplace_back("__metadata__", std::move(words));
  size_t offset = 0;
  for (const LazyTensor& tensor : tensors) {
    const size_t end = offset + bytes_of(tensor);
    header.emplace_back(tensor.name, JsonObject{{"dtype", safetensors_name(tensor.dtype)},
                                                {"shape", Json::array(tensor.shape)},
                                                {"data_offsets", JsonArray{offset, end}}});
    offset = end;
  }
  std::string text = Json(std::move(header)).dump();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 255);

  FileWriter writer(path);
  writer.write(length + text);
  std::vector<char> storage;
  for (const LazyTensor& lazy : tensors) {
    const Tensor tensor = lazy.read(storage);
    HONE_CHECK(tensor.contiguous() && tensor.bytes() == bytes_of(lazy), path.string(), ": tensor '", lazy.name,
               "' is not what was announced");
    writer.write({static_cast<const char*>(tensor.data), tensor.bytes()});
  }
  writer.flush();
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata, uint64_t max_shard_bytes) {
  std::vector<LazyTensor> lazy;
  for (const auto& [name, tensor] : tensors) {
    HONE_CHECK(tensor && tensor.device == DeviceKind::cpu && tensor.contiguous(), path.string(), ": tensor '", name,
               "' is not a contiguous one on the host");
    lazy.push_back({.name = name,
                    .dtype = tensor.dtype,
                    .shape = {tensor.dims().begin(), tensor.dims().end()},
                    .read = [data = tensor](std::vector<char>&) { return data; }});
  }
  write_safetensors(path, std::move(lazy), metadata, max_shard_bytes);
}

void write_safetensors(const std::filesystem::path& path, std::vector<LazyTensor> tensors,
                       const std::map<std::string, std::string>& metadata, uint64_t max_shard_bytes) {
  std::vector<LazyTensor>& order = tensors;
  std::sort(order.begin(), order.end(), [](const LazyTensor& a, const LazyTensor& b) {
    const size_t a_size = size_of(a.dtype), b_size = size_of(b.dtype);
    return a_size != b_size ? a_size > b_size : a.name < b.name;
  });
  std::vector<std::string> names;
  for (const LazyTensor& tensor : order) {
    HONE_CHECK(tensor.name != "__metadata__", path.string(), ": a tensor cannot be named __metadata__");
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail(path.string(), ": tensor '", *twice, "' is given twice");

  std::vector<std::span<const LazyTensor>> shards;
  uint64_t total = 0, used = 0;
  size_t begin = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t bytes = bytes_of(order[i]);
    if (i > begin && used + bytes > max_shard_bytes) {
      shards.emplace_back(order.data() + begin, i - begin);
      begin = i, used = 0;
    }
    used += bytes, total += bytes;
  }
  shards.emplace_back(order.data() + begin, order.size() - begin);
  if (shards.size() == 1) return write_shard(path, shards[0], metadata);

  const auto padded = [](size_t number) {
    const std::string text = std::to_string(number);
    return std::string(5 - std::min<size_t>(text.size(), 5), '0') + text;
  };
  JsonObject weight_map;
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name =
        concat(path.stem().string(), "-", padded(s + 1), "-of-", padded(shards.size()), ".safetensors");
    write_shard(path.parent_path() / name, shards[s], metadata);
    for (const LazyTensor& tensor : shards[s]) weight_map.emplace_back(tensor.name, name);
  }
  std::sort(weight_map.begin(), weight_map.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const Json index = JsonObject{{"metadata", JsonObject{{"total_size", static_cast<int64_t>(total)}}},
                                {"weight_map", std::move(weight_map)}};
  FileWriter writer(path.string() + ".index.json");
  writer.write(index.dump(2) + "\n");
  writer.flush();
}

}  // namespace hone
