#include "model/io/tensor_file.h"

#include "core/io/safetensors.h"
#include "model/io/file_layout.h"
#include "model/io/gguf_model.h"
#include "model/io/model_files.h"

namespace hone {
namespace {

class SafetensorsFile : public TensorFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path) : reader_(path) {}
  std::vector<std::string> names() const override { return reader_.names(); }
  bool contains(std::string_view name) const override { return reader_.contains(name); }
  TensorOutline outline(std::string_view name) const override {
    const Tensor tensor = reader_.at(name);
    return {tensor.dtype, {tensor.dims().begin(), tensor.dims().end()}};
  }
  Tensor read(std::string_view name, std::vector<char>&) const override { return reader_.at(name); }

 private:
  SafetensorsReader reader_;
};

}  // namespace

std::unique_ptr<TensorFile> open_safetensors(const std::filesystem::path& path) {
  return std::make_unique<SafetensorsFile>(path);
}

std::unique_ptr<TensorFile> open_weights(const std::filesystem::path& model) {
  if (is_gguf(model)) return std::make_unique<GgufModel>(model);
  check_weights(model);
  const Json config = read_model_config(model);
  std::unique_ptr<TensorFile> file = open_safetensors(model);
  try {
    return file_layout(config).read(std::move(file));
  } catch (const Error& error) {  // it names the tensor; this adds the folder
    fail(model.string(), ": ", error.what());
  }
}

}  // namespace hone
