#pragma once
// How the files of a family hold tensors whose parameters have another form, such as the experts of a mixture: one
// tensor of the file for all experts, and one parameter slice for each.
#include <memory>
#include <vector>

#include "core/base/registry.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "model/io/tensor_file.h"

namespace hone {

struct FileLayout {
  // Wraps a file: the result has the names and shapes of parameter slices. Throws Error if the file's tensors do not
  // fit.
  std::unique_ptr<TensorFile> (*read)(std::unique_ptr<TensorFile> file) = nullptr;
  // Makes the tensors of a file to save from those of the slices; null: they are the same.
  std::vector<LazyTensor> (*write)(std::vector<LazyTensor> slices) = nullptr;
};

// Layouts by model_type of config.json, of families that differ from the others.
Registry<FileLayout>& file_layouts();
// The layout of a model's files: its family's, or that of all other families. config: config.json.
FileLayout file_layout(const Json& config);

}  // namespace hone
