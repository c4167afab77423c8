#pragma once
// TensorFile: the tensors of a model under their Hugging Face names, whatever the format of the file.
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device/tensor.h"

namespace hone {

struct TensorOutline {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual std::vector<std::string> names() const = 0;  // sorted
  virtual bool contains(std::string_view name) const = 0;
  // The tensor of the file that holds the tensor `name`, or that would hold it: another name if the file fuses tensors.
  virtual std::string holder(std::string_view name) const { return std::string(name); }
  // If the file's own tensor `holder` holds `count` slices of the shape `slice`: its outline in the file, if the file
  // has it, and the shape that it must have. Nothing if the file does not fuse tensors in this form.
  struct Holding {
    std::optional<TensorOutline> found;
    std::vector<int64_t> wanted;
  };
  virtual std::optional<Holding> holding(std::string_view /*holder*/, std::span<const int64_t> /*slice*/,
                                         int64_t /*count*/) const {
    return std::nullopt;
  }
  virtual TensorOutline outline(std::string_view name) const = 0;
  // The tensor on the host, contiguous. Its data lie in the file's mapping or in `storage`, and are valid while both
  // live. Data of foreign files may be unaligned for their type.
  virtual Tensor read(std::string_view name, std::vector<char>& storage) const = 0;
};

// A .safetensors file, or a folder with one or several.
std::unique_ptr<TensorFile> open_safetensors(const std::filesystem::path& path);
// The weights of a model folder or .gguf file, which has no adapter.
std::unique_ptr<TensorFile> open_weights(const std::filesystem::path& model);

}  // namespace hone
