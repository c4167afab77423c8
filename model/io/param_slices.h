#pragma once
// Parameters as the tensors of a safetensors file: each row slice is one.
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "model/model.h"

namespace hone {

// A row slice of a parameter and where the file has it.
struct FileSlice {
  const Param* param;
  int64_t first_row, rows;
  std::string name;  // in the file

  Tensor value() const { return param->value.rows(first_row, rows); }
  std::vector<int64_t> file_shape() const;
};

std::vector<FileSlice> file_slices(std::span<Param* const> params);
// Adds to problems what keeps the file's tensor from being the piece's values.
void check_slice(const FileSlice& piece, const SafetensorsReader& file, std::vector<std::string>& problems);
// An Error that lists the problems (the first of many), unless there is none: "folder: the tensors do not fit
// config.json: ...".
void throw_problems(std::vector<std::string> problems, const std::filesystem::path& folder, const char* config);
void read_slice(Context& context, Arena& staging, const FileSlice& piece, Tensor file);
std::string shape_text(std::span<const int64_t> shape);
// A file of the pieces and of `more`.
void write_slices(Context& context, std::span<const FileSlice> pieces, DType dtype, const std::filesystem::path& file,
                  std::vector<NamedTensor> more = {});

}  // namespace hone
