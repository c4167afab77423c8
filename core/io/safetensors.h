#pragma once
// The safetensors format of Hugging Face: u64 little-endian header length N, then N bytes of JSON {name: {dtype, shape,
// data_offsets: [begin, end]}, "__metadata__": {...}}, then the data. Offsets count from the end of the header. A
// sharded set adds model.safetensors.index.json {"metadata": {total_size}, "weight_map": {name: file}}. The reader
// checks every length, offset, shape product and overlap before use. A short body, a header length past the file,
// overflowing shapes, overlapping or misordered ranges, duplicate names and unknown dtypes are Errors that name file
// and tensor.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/device/tensor.h"

namespace hone {

// A read-only, memory-mapped view of one file or a sharded set. Its tensors (on cpu) are valid while the reader lives.
class SafetensorsReader {
 public:
  // path: a .safetensors file, a model.safetensors.index.json, or a folder with either. A .gz file is unpacked into
  // memory.
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;

  std::vector<std::string> names() const;  // sorted
  bool contains(std::string_view name) const;
  // Contiguous; a scalar has shape [1]. Throws an Error with the file and the nearest name if the name is missing. Data
  // of foreign files may be unaligned for its type: copy it before use.
  Tensor at(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Checks the header of a file's contents and returns its tensor names, sorted. Entry of the fuzz target.
std::vector<std::string> check_safetensors(std::string_view bytes, std::string_view source);

struct NamedTensor {
  std::string name;
  Tensor tensor;  // on the host, contiguous
};

// A tensor that is made when it is written: one is in memory at a time. Its data may lie in `storage`.
struct LazyTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::function<Tensor(std::vector<char>& storage)> read;
};

// Writes `path`; above max_shard_bytes model-0000i-of-0000n.safetensors and the index in the same folder. Tensors are
// in order of element size (large first), then name, so that each is aligned. Data starts at a multiple of 64 bytes.
// Not atomic: write into a temporary folder and rename it (core/io/checkpoint.h).
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       uint64_t max_shard_bytes = uint64_t{5} << 30);
void write_safetensors(const std::filesystem::path& path, std::vector<LazyTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       uint64_t max_shard_bytes = uint64_t{5} << 30);

}  // namespace hone
