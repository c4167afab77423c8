#pragma once
// safetensors: u64 little-endian header length N, N bytes of JSON {name: {dtype, shape, data_offsets: [begin, end]},
// "__metadata__": {...}}, then the data. Offsets count from the end of the header. Sharded:
// model.safetensors.index.json {"metadata": {total_size}, "weight_map": {name: file}}. Every length, offset, shape
// product and overlap is checked before use; nothing read from the file is trusted. (A body cut short, a header length
// past the file, overflowing shapes, overlapping or misordered ranges, duplicate names and unknown dtypes are Errors
// naming file and tensor.)
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/device/tensor.h"

namespace hone {

// Read-only view of one file or a sharded set, memory-mapped. Tensors (device cpu) stay valid as long as the reader.
class SafetensorsReader {
 public:
  // A .safetensors file, a model.safetensors.index.json, or a folder that holds either; a name ending in .gz is
  // unpacked into memory.
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;

  std::vector<std::string> names() const;  // sorted
  bool contains(std::string_view name) const;
  // Contiguous; a missing name is an Error that names the file and the nearest known. A scalar has shape [1]. Data of
  // files that others wrote may be unaligned for its type: copy out.
  Tensor at(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Validates a header and returns the names it holds, sorted; the fuzz target's entry. bytes is a whole file's contents.
std::vector<std::string> check_safetensors(std::string_view bytes, std::string_view source);

struct NamedTensor {
  std::string name;
  Tensor tensor;  // on the host, contiguous
};

// Writes path (or, past max_shard_bytes, model-0000i-of-0000n.safetensors and the index beside it), tensors by element
// size, large first, then by name, so that each is aligned for its type. Data starts at a multiple of 64 bytes. Not
// atomic by itself: write into a temporary folder and rename (core/io/checkpoint.h).
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       uint64_t max_shard_bytes = uint64_t{5} << 30);

}  // namespace hone
