#pragma once
// The GGUF format of llama.cpp, versions 2 and 3, little-endian:
//
//   "GGUF", u32 version, u64 tensors, u64 keys
//   keys     string name, u32 type, value. A string is u64 length and bytes; an array is u32 type, u64 count, values.
//   tensors  string name, u32 dims, u64 size of each dim (innermost first), u32 type, u64 offset
//   data     from the next multiple of general.alignment (32); offsets count from there
//
// The reader checks magic, version, counts, types, lengths, nesting, dims, offsets, alignment, overlaps and the end of
// the file before it allocates or indexes. Each Error names the file, the key or tensor, and what would be right.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/gguf/gguf_types.h"
#include "core/io/json.h"

namespace hone {

inline constexpr std::string_view gguf_magic = "GGUF";

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;  // outermost first, as in safetensors
  std::string_view bytes;      // within the file

  int64_t columns() const { return shape.back(); }
  int64_t rows() const;
  std::string_view row_bytes(int64_t row) const;
};

struct GgufContents {
  // Keys in the order of the file. A 32-bit float has the value of its shortest decimal form: 1e-05, not 9.99e-06.
  Json metadata = JsonObject{};
  std::vector<GgufTensor> tensors;
};

// Reads the header and the keys of a file's contents. Entry of the fuzz target.
GgufContents parse_gguf(std::string_view bytes, const std::string& source);

// A read-only, memory-mapped file, or the set NAME-00001-of-0000N.gguf that the first file names. Tensors are valid
// while the reader lives.
class GgufReader {
 public:
  explicit GgufReader(const std::filesystem::path& path);
  ~GgufReader();
  GgufReader(GgufReader&&) noexcept;

  const std::string& source() const;  // the file's name in messages
  const Json* find(std::string_view key) const { return contents_.metadata.find(key); }
  const Json& metadata() const { return contents_.metadata; }
  const std::vector<GgufTensor>& tensors() const { return contents_.tensors; }
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr: there is none

  // A key's value; the fallback if the file lacks the key. A value of another kind or range is an Error.
  std::string text(std::string_view key, std::string_view fallback) const;
  bool flag(std::string_view key, bool fallback) const;
  int64_t integer(std::string_view key, int64_t fallback) const;
  double number(std::string_view key, double fallback) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  GgufContents contents_;
};

// Whether a file begins as GGUF does, or its name ends in .gguf. False for folders and missing files.
bool is_gguf(const std::filesystem::path& path);

}  // namespace hone
