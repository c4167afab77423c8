#include "model/io/param_slices.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "core/base/log.h"
#include "core/base/parallel_for.h"
#include "core/base/suggest.h"
#include "kernels/elementwise/cast.h"
#include "model/mtp.h"

namespace hone {
namespace {

constexpr std::string_view head_name = "lm_head.weight";
constexpr std::string_view value_head_name = "score.weight";

// Tensors of older checkpoints that are no parameters: causal masks and RoPE frequencies.
bool is_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

bool is_empty(const TensorOutline& tensor) {
  return std::ranges::any_of(tensor.shape, [](int64_t dim) { return dim == 0; });
}

// The gate of a shared expert of width 0 (Qwen2-MoE): it multiplies zeros.
bool gates_nothing(std::string_view name, const Json& config) {
  const Json* width = config.find("shared_expert_intermediate_size");
  return name.ends_with(".shared_expert_gate.weight") && width && width->is_int() && width->as_int() == 0;
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

std::vector<FileSlice> slices_of_file(Model& model) {
  std::vector<FileSlice> out = file_slices(model.params());
  for (const MtpCopy& copy : mtp_copies(model)) out.push_back({copy.of, 0, copy.of->shape[0], copy.name});
  return out;
}

// The name of a tensor for people: with the file's tensor that holds it, if that is another.
static std::string shown_name(const TensorFile& file, const std::string& name) {
  const std::string holder = file.holder(name);
  return holder == name ? name : concat(holder, " (of it ", name, ")");
}

void check_slice(const FileSlice& slice, const TensorFile& file, std::vector<std::string>& problems) {
  if (!file.contains(slice.name)) {
    problems.push_back("missing " + shown_name(file, slice.name));
    return;
  }
  const TensorOutline tensor = file.outline(slice.name);
  const std::vector<int64_t> shape = slice.file_shape();
  if (tensor.shape != shape)
    problems.push_back(
        concat(shown_name(file, slice.name), " is ", shape_text(tensor.shape), ", wants ", shape_text(shape)));
  const bool number = tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16 ||
                      tensor.dtype == DType::f64;
  if (!number)
    problems.push_back(
        concat(shown_name(file, slice.name), " holds ", name_of(tensor.dtype), ", wants f32, bf16, f16 or f64"));
}

void throw_problems(std::vector<std::string> problems, const std::filesystem::path& folder, const char* config) {
  if (problems.empty()) return;
  constexpr size_t shown = 12;
  const size_t count = problems.size();
  if (count > shown) problems.resize(shown);
  fail(folder.string(), ": the tensors do not fit ", config, ": ", join(problems, "; "),
       count > shown ? concat("; and ", count - shown, " more") : "");
}

// True for a tensor of a layer past the model's last one, if its family has such layers: they predict tokens further
// ahead (model/mtp.h). The model has no such layer.
static bool is_prediction_layer(const std::string& name, const Model& model, const Json& config) {
  constexpr std::string_view layers = "model.layers.";
  if (!config.find("num_nextn_predict_layers") || !name.starts_with(layers)) return false;
  int64_t layer = -1;
  std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  const Mtp* const mtp = mtp_of(model);
  return layer >= model.shape().num_layers + (mtp ? static_cast<int64_t>(mtp->size()) : 0);
}

// The name of the slice that holds the whole parameter.
static const std::string& name_of(std::span<const FileSlice> slices, const Param* param) {
  return std::ranges::find(slices, param, &FileSlice::param)->name;
}

// Compares the copies of embedding and lm_head that layers of multi-token prediction have in the file. They are not
// read.
static void check_copies(Model& model, const TensorFile& file, std::span<const FileSlice> slices,
                         std::set<std::string>& used, std::vector<std::string>& problems) {
  for (const MtpCopy& copy : mtp_copies(model)) {
    const std::string& original = name_of(slices, copy.of);
    if (!file.contains(copy.name) || !file.contains(original)) continue;
    used.insert(copy.name);
    if (!same_numbers(file, copy.name, original))
      problems.push_back(concat(copy.name, " differs from ", original, ", which it must be a copy of"));
  }
}

// Checks the file's fused tensors by their own names and shapes. Returns those that do not fit.
static std::set<std::string> check_holders(std::span<const FileSlice> slices, const TensorFile& file,
                                           std::vector<std::string>& problems) {
  std::map<std::string, std::vector<const FileSlice*>> holders;
  for (const FileSlice& slice : slices)
    if (const std::string holder = file.holder(slice.name); holder != slice.name) holders[holder].push_back(&slice);
  std::set<std::string> broken;
  for (const auto& [name, held] : holders) {
    const auto holding = file.holding(name, held.front()->file_shape(), std::ssize(held));
    if (!holding || (holding->found && holding->found->shape == holding->wanted)) continue;
    problems.push_back(holding->found ? concat(name, " is ", shape_text(holding->found->shape), ", wants ",
                                               shape_text(holding->wanted))
                                      : "missing " + name);
    broken.insert(name);
  }
  return broken;
}

std::vector<FileSlice> match_slices(Model& model, const TensorFile& file, const std::filesystem::path& folder,
                                    std::span<const Param* const> added) {
  std::vector<FileSlice> slices = file_slices(model.base_params());
  std::erase_if(slices, [&](const FileSlice& slice) { return std::ranges::find(added, slice.param) != added.end(); });
  std::vector<std::string> problems;
  std::set<std::string> used;
  // A file saved from a model without lm_head lacks the first part of each name ("transformer.", "model.").
  for (FileSlice& slice : slices) {
    const std::string bare = slice.name.substr(slice.name.find('.') + 1);
    if (!file.contains(slice.name) && file.contains(bare)) slice.name = bare;
    used.insert(slice.name);
  }
  std::set<std::string> broken = check_holders(slices, file, problems);  // one problem of a fused tensor tells enough
  for (const FileSlice& slice : slices) {
    const std::string holder = file.holder(slice.name);
    if (broken.contains(holder)) continue;
    const size_t before = problems.size();
    check_slice(slice, file, problems);
    if (problems.size() > before) broken.insert(holder);
  }
  const std::string& head = name_of(slices, &model.lm_head());
  check_copies(model, file, slices, used, problems);
  const Json config = model.config();
  size_t ahead = 0;  // tensors of layers that predict further ahead
  for (const std::string& name : file.names()) {
    if (used.contains(name) || is_buffer(name) || name == value_head_name || broken.contains(file.holder(name)))
      continue;
    // Of a module of width 0, which the model does not have.
    if (is_empty(file.outline(name)) || gates_nothing(name, config)) continue;
    if (is_prediction_layer(name, model, config)) {
      ++ahead;
      continue;
    }
    if (name != head_name || !file.contains(head)) {
      problems.push_back("surplus " + file.holder(name));
      broken.insert(file.holder(name));
    } else if (!same_numbers(file, name, head)) {
      problems.push_back(
          concat(head_name, " differs from ", head, " although config.json ties them (tie_word_embeddings)"));
    }
  }
  throw_problems(std::move(problems), folder, "config.json");
  if (ahead > 0)
    log::warning(folder.string(), ": ", ahead, " tensors of layers of multi-token prediction are not read");
  return slices;
}

// The index of the first of `count` numbers whose exponent has all bits set; count: none. Data may be unaligned.
template <class Bits>
static int64_t first_not_finite(const char* data, int64_t count, Bits exponent) {
  constexpr int64_t block = 4096;
  const auto bits_at = [&](int64_t i) {
    Bits bits;
    std::memcpy(&bits, data + static_cast<size_t>(i) * sizeof(Bits), sizeof(Bits));
    return bits;
  };
  std::atomic<int64_t> first = count;
  parallel_for((count + block - 1) / block, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * block; i < std::min(count, end * block) && i < first; i += block) {
      const int64_t last = std::min(count, i + block);
      bool any = false;
      for (int64_t j = i; j < last; ++j) any |= (bits_at(j) & exponent) == exponent;  // without a branch: in vectors
      if (!any) continue;
      int64_t found = i;
      while ((bits_at(found) & exponent) != exponent) ++found;
      int64_t known = first;
      while (found < known && !first.compare_exchange_weak(known, found)) {}
    }
  });
  return first;
}

static int64_t first_not_finite(const Tensor& tensor) {
  const char* const data = static_cast<const char*>(tensor.data);
  switch (tensor.dtype) {
    case DType::f32:
      return first_not_finite<uint32_t>(data, tensor.size(), 0x7f800000);
    case DType::bf16:
      return first_not_finite<uint16_t>(data, tensor.size(), 0x7f80);
    case DType::f16:
      return first_not_finite<uint16_t>(data, tensor.size(), 0x7c00);
    case DType::f64:
      return first_not_finite<uint64_t>(data, tensor.size(), 0x7ff0000000000000);
    default:
      return tensor.size();
  }
}

void check_finite(const std::string& name, const Tensor& tensor, const TensorFile& file,
                  const std::filesystem::path& folder) {
  int64_t index = first_not_finite(tensor);
  if (index == tensor.size()) return;
  std::vector<int64_t> place(static_cast<size_t>(tensor.rank));
  for (size_t dim = place.size(); dim-- > 0; index /= tensor.dim(static_cast<int>(dim)))
    place[dim] = index % tensor.dim(static_cast<int>(dim));
  fail(folder.string(), ": ", shown_name(file, name), " is NaN or infinite at ", shape_text(place),
       "; weights must be finite: use an earlier checkpoint");
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

std::vector<LazyTensor> slices_to_save(Context& context, std::span<const FileSlice> slices, DType dtype) {
  const auto staging = std::make_shared<Arena>(context.device());
  std::vector<LazyTensor> out;
  for (const FileSlice& slice : slices) {
    const DType in_file = slice.param->keep_f32 ? DType::f32 : dtype;
    out.push_back({.name = slice.name,
                   .dtype = in_file,
                   .shape = slice.file_shape(),
                   .read = [&context, staging, slice, in_file](std::vector<char>& storage) {
                     storage = host_bytes(context, *staging, slice, in_file);
                     return Tensor(storage.data(), in_file, DeviceKind::cpu, slice.file_shape());
                   }});
  }
  return out;
}

LazyTensor value_head_to_save(std::string_view name, std::span<const float> numbers) {
  const auto width = static_cast<int64_t>(numbers.size());
  return {.name = std::string(name), .dtype = DType::f32, .shape = {1, width}, .read = [=](std::vector<char>&) {
            return host_view(numbers).view({1, width});
          }};
}

}  // namespace hone
