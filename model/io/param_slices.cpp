#include "model/io/param_slices.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/suggest.h"
#include "kernels/elementwise/cast.h"

namespace hone {
namespace {

constexpr std::string_view head_name = "lm_head.weight";
constexpr std::string_view value_head_name = "score.weight";

// Tensors of older checkpoints that are no parameters: causal masks and RoPE frequencies.
bool is_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

bool same_numbers(const TensorFile& file, std::string_view first, std::string_view second) {
  std::vector<char> first_storage, second_storage;
  const Tensor a = file.read(first, first_storage), b = file.read(second, second_storage);
  return a.dtype == b.dtype && std::ranges::equal(a.dims(), b.dims()) && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Transposes: to [cols, rows] = from [rows, cols], elements of `width` bytes at any alignment.
void transpose(char* to, const char* from, int64_t rows, int64_t cols, size_t width) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      std::memcpy(to + static_cast<size_t>(c * rows + r) * width, from + static_cast<size_t>(r * cols + c) * width,
                  width);
}

// Calls visit(rows, byte offset in `element_bytes` per element) for each part of a slice that staging memory may hold.
template <class Visit>
void for_each_part(const Tensor& value, size_t element_bytes, Visit visit) {
  const int64_t width = value.size() / std::max<int64_t>(1, value.dim(0)),
                step = std::max<int64_t>(1, max_staged_elements / std::max<int64_t>(1, width));
  for (int64_t first = 0; first < value.dim(0); first += step)
    visit(value.rows(first, std::min(step, value.dim(0) - first)), static_cast<size_t>(first * width) * element_bytes);
}

std::vector<char> host_bytes(Context& context, Arena& staging, const FileSlice& slice, DType dtype) {
  const Tensor value = slice.value();
  std::vector<char> out(static_cast<size_t>(value.size()) * size_of(dtype));
  for_each_part(value, size_of(dtype), [&](const Tensor& part, size_t at) {
    const Arena::Mark mark = staging.mark();
    const Tensor raw = staging.take(dtype, part.dims());
    cast(context, raw, part);
    context.copy(Tensor(out.data() + at, dtype, DeviceKind::cpu, raw.dims()), raw);
    context.synchronize();
    staging.release(mark);
  });
  if (slice.param->transposed) {
    const std::vector<char> plain = out;
    transpose(out.data(), plain.data(), value.dim(0), value.dim(1), size_of(dtype));
  }
  return out;
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
  std::string out;
  for (const int64_t dim : shape) out += (out.empty() ? "[" : ", ") + std::to_string(dim);
  return out + "]";
}

std::vector<int64_t> FileSlice::file_shape() const {
  if (param->shape.size() == 1) return {rows};
  return param->transposed ? std::vector{param->shape[1], rows} : std::vector{rows, param->shape[1]};
}

std::vector<FileSlice> file_slices(std::span<Param* const> params) {
  std::vector<FileSlice> out;
  for (const Param* param : params) {
    int64_t row = 0;
    for (const Param::Slice& slice : param->slices) {
      out.push_back({param, row, slice.rows, slice.name});
      row += slice.rows;
    }
  }
  return out;
}

void check_slice(const FileSlice& slice, const TensorFile& file, std::vector<std::string>& problems) {
  if (!file.contains(slice.name)) {
    problems.push_back("missing " + slice.name);
    return;
  }
  const TensorOutline tensor = file.outline(slice.name);
  const std::vector<int64_t> shape = slice.file_shape();
  if (tensor.shape != shape)
    problems.push_back(concat(slice.name, " is ", shape_text(tensor.shape), ", wants ", shape_text(shape)));
  const bool number = tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16 ||
                      tensor.dtype == DType::f64;
  if (!number)
    problems.push_back(concat(slice.name, " holds ", name_of(tensor.dtype), ", wants f32, bf16, f16 or f64"));
}

void throw_problems(std::vector<std::string> problems, const std::filesystem::path& folder, const char* config) {
  if (problems.empty()) return;
  constexpr size_t shown = 12;
  const size_t count = problems.size();
  if (count > shown) problems.resize(shown);
  fail(folder.string(), ": the tensors do not fit ", config, ": ", join(problems, "; "),
       count > shown ? concat("; and ", count - shown, " more") : "");
}

std::vector<FileSlice> match_slices(Model& model, const TensorFile& file, const std::filesystem::path& folder) {
  std::vector<FileSlice> slices = file_slices(model.base_params());
  std::vector<std::string> problems;
  std::set<std::string> used;
  for (FileSlice& slice : slices) {
    // A file saved from a model without lm_head lacks the first part of each name ("transformer.", "model.").
    const std::string bare = slice.name.substr(slice.name.find('.') + 1);
    if (!file.contains(slice.name) && file.contains(bare)) slice.name = bare;
    check_slice(slice, file, problems);
    used.insert(slice.name);
  }
  const std::string& head = std::ranges::find(slices, &model.lm_head(), &FileSlice::param)->name;
  for (const std::string& name : file.names()) {
    if (used.contains(name) || is_buffer(name) || name == value_head_name) continue;
    if (name != head_name || !file.contains(head))
      problems.push_back("surplus " + name);
    else if (!same_numbers(file, name, head))
      problems.push_back(
          concat(head_name, " differs from ", head, " although config.json ties them (tie_word_embeddings)"));
  }
  throw_problems(std::move(problems), folder, "config.json");
  return slices;
}

void read_slice(Context& context, Arena& staging, const FileSlice& slice, Tensor file) {
  std::vector<char> turned;
  if (slice.param->transposed) {
    turned.resize(file.bytes());
    transpose(turned.data(), static_cast<const char*>(file.data), file.dim(0), file.dim(1), size_of(file.dtype));
    file.data = turned.data();
  }
  for_each_part(slice.value(), size_of(file.dtype), [&](const Tensor& part, size_t at) {
    const Arena::Mark mark = staging.mark();
    const Tensor raw = staging.take(file.dtype, part.dims());
    // Copied before it is read as numbers: the file's bytes may be unaligned.
    context.copy(raw, Tensor(static_cast<char*>(file.data) + at, file.dtype, DeviceKind::cpu, part.dims()));
    cast(context, part, raw);
    context.synchronize();
    staging.release(mark);
  });
}

void write_slices(Context& context, std::span<const FileSlice> slices, DType dtype, const std::filesystem::path& file,
                  std::vector<NamedTensor> more) {
  Arena staging(context.device());
  std::vector<std::vector<char>> bytes;
  for (const FileSlice& slice : slices) {
    bytes.push_back(host_bytes(context, staging, slice, dtype));
    more.push_back({slice.name, Tensor(bytes.back().data(), dtype, DeviceKind::cpu, slice.file_shape())});
  }
  write_safetensors(file, more);
}

}  // namespace hone
