#pragma once
// Parameters as tensors of a file: each slice of a parameter is one tensor.
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "model/io/tensor_file.h"
#include "model/model.h"

namespace hone {

// A slice of a parameter and its tensor in the file.
struct FileSlice {
  const Param* param;
  int64_t first_row, rows;
  std::string name;  // in the file

  Tensor value() const { return param->value.rows(first_row, rows); }
  std::vector<int64_t> file_shape() const;
};

std::vector<FileSlice> file_slices(std::span<Param* const> params);
// Those of a file that holds the whole model: with copies of embedding and lm_head in the layers of multi-token
// prediction, as in published files.
std::vector<FileSlice> slices_of_file(Model& model);
// Appends to `problems` if the file lacks the tensor, or has another shape or dtype.
void check_slice(const FileSlice& slice, const TensorFile& file, std::vector<std::string>& problems);
// Throws an Error that lists the problems (at most the first few), unless there is none: "folder: the tensors do not
// fit config.json: ...".
void throw_problems(std::vector<std::string> problems, const std::filesystem::path& folder, const char* config);
// Finds the file's tensor of every slice of a model without adapters, but not of those of `added`. Throws an Error that
// lists what does not fit.
std::vector<FileSlice> match_slices(Model& model, const TensorFile& file, const std::filesystem::path& folder,
                                    std::span<const Param* const> added = {});
// Throws an Error that names the first number of the file's tensor `name` that is NaN or infinite. It is read by all
// threads, which also brings the file's pages into memory.
void check_finite(const std::string& name, const Tensor& tensor, const TensorFile& file,
                  const std::filesystem::path& folder);
// Copies the file's tensor to the slice, with a cast. Takes staging memory for max_staged_elements at a time, or for
// one row if that has more: checkpoints are written while all other memory is in use.
void read_slice(Context& context, Arena& staging, const FileSlice& slice, Tensor file);
constexpr int64_t max_staged_elements = int64_t{1} << 22;
std::string shape_text(std::span<const int64_t> shape);
// The slices as tensors of `dtype` to save, or f32 (Param::keep_f32): each is copied to the host when it is read.
// context must outlive them.
std::vector<LazyTensor> slices_to_save(Context& context, std::span<const FileSlice> slices, DType dtype);
// A value head, D numbers, as a tensor [1, D] to save. The numbers must outlive it.
LazyTensor value_head_to_save(std::string_view name, std::span<const float> numbers);

}  // namespace hone
