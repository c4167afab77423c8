#pragma once
// How the files of a family hold tensors whose parameters have another form: the experts of a mixture.
#include <memory>
#include <vector>

#include "core/base/registry.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "model/io/tensor_file.h"

namespace hone {

struct FileLayout {
  // The file under the names and shapes of parameter slices.
  std::unique_ptr<TensorFile> (*read)(std::unique_ptr<TensorFile> file) = nullptr;
  // The tensors of a file to save, from those of the slices; null: they are the same.
  std::vector<LazyTensor> (*write)(std::vector<LazyTensor> slices) = nullptr;
};

// Layouts by model_type of config.json, of families that differ from the others.
Registry<FileLayout>& file_layouts();
FileLayout file_layout(const Json& config);

}  // namespace hone
