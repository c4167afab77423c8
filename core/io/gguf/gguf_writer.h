#pragma once
// Writes GGUF files, version 3: keys and outlines of tensors first, then the data tensor by tensor, so that one tensor
// is in memory at a time. The format is described in core/io/gguf/gguf.h.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/gguf/gguf_types.h"

namespace hone {

class GgufWriter {
 public:
  // architecture: the prefix of the keys that count(), number() and text() write; itself general.architecture.
  explicit GgufWriter(std::string architecture);
  const std::string& architecture() const { return architecture_; }

  // "ARCHITECTURE.key": a u32, an f32, a string.
  void count(std::string_view key, int64_t value) { set_u32(full(key), value); }
  void number(std::string_view key, double value) { set_f32(full(key), value); }
  void text(std::string_view key, std::string_view value) { set_text(full(key), value); }

  // Keys with their complete names. A key that is set twice is an Error.
  void set_u32(std::string_view key, int64_t value);
  void set_f32(std::string_view key, double value);
  void set_flag(std::string_view key, bool value);
  void set_text(std::string_view key, std::string_view value);
  void set_texts(std::string_view key, const std::vector<std::string>& values);
  void set_i32s(std::string_view key, const std::vector<int32_t>& values);
  void set_f32s(std::string_view key, const std::vector<float>& values);

  // A tensor; shape is outermost first. make() returns its bytes and is called once, when the file is written.
  void add_tensor(std::string name, const GgufType& type, std::vector<int64_t> shape,
                  std::function<std::string()> make);

  // Not atomic. Tensors are written in the order they were added.
  void write(const std::filesystem::path& path) const;

 private:
  struct PlannedTensor {
    std::string name;
    const GgufType* type;
    std::vector<int64_t> shape;
    std::function<std::string()> make;
    uint64_t bytes;
  };
  std::string full(std::string_view key) const { return architecture_ + "." + std::string(key); }
  void begin_key(std::string_view key, uint32_t type);

  std::string architecture_, keys_;  // keys_: as in the file
  std::vector<std::string> names_;
  std::vector<PlannedTensor> tensors_;
};

// Numbers as bytes of the type: F32, F16, BF16 or Q8_0. The count must be a multiple of the type's block.
std::string encode_gguf(const GgufType& type, std::span<const float> values);

}  // namespace hone
