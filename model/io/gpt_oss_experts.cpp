// The files of gpt-oss. Each layer keeps its experts in tensors of its own form:
//
//   PREFIX.experts.gate_up_proj [E, D, 2F]   matrices transposed; gate columns are even, up columns odd
//   PREFIX.experts.gate_up_proj_bias [E, 2F]
//   PREFIX.experts.down_proj [E, F, D]
//   PREFIX.experts.down_proj_bias [E, D]
//
// or with the matrices in MXFP4 (mxfp4.h), which are not transposed: gate_up_proj_blocks u8 [E, 2F, D / 32, 16] and
// gate_up_proj_scales u8 [E, 2F, D / 32], and the same of down_proj. MXFP4 is read, as bf16, and never written.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "model/io/file_layout.h"
#include "model/io/mxfp4.h"
#include "model/io/param_slices.h"

namespace hone {
namespace {

constexpr std::string_view experts_part = ".experts.", blocks_end = "_blocks", scales_end = "_scales",
                           bias_end = "_bias";
constexpr int64_t max_experts = 4096;

// From one row, or column, of a matrix to the next, in elements.
struct Steps {
  int64_t row, column;
};
// Copies a matrix of elements of `width` bytes, in squares, so that both sides stay in the cache.
void copy_elements(char* to, Steps to_steps, const char* from, Steps from_steps, int64_t rows, int64_t columns,
                   size_t width) {
  constexpr int64_t side = 32;
  const auto at = [width](Steps steps, int64_t i, int64_t j) {
    return static_cast<size_t>(i * steps.row + j * steps.column) * width;
  };
  for (int64_t i0 = 0; i0 < rows; i0 += side)
    for (int64_t j0 = 0; j0 < columns; j0 += side)
      for (int64_t i = i0; i < std::min(rows, i0 + side); ++i)
        for (int64_t j = j0; j < std::min(columns, j0 + side); ++j)
          std::memcpy(to + at(to_steps, i, j), from + at(from_steps, i, j), width);
}

// Which outputs of the file's tensor are those of one matrix or bias: every `step`-th from `first`.
struct Outputs {
  int64_t first = 0, step = 1;
};
constexpr Outputs gate_outputs{0, 2}, up_outputs{1, 2}, down_outputs{0, 1};

// How a tensor of the file holds what it has: the dims of its shape, and the places of outputs and inputs among them.
enum class Form : uint8_t { other, matrix, bias, mxfp4 };
struct FormDims {
  size_t rank;
  size_t outputs, inputs;  // inputs 0: none
  const char* text;
};
FormDims dims_of(Form form) {
  if (form == Form::mxfp4) return {4, 1, 2, "[experts, outputs, inputs / 32, 16] of u8"};
  if (form == Form::matrix) return {3, 2, 1, "[experts, inputs, outputs]"};
  return {2, 1, 0, "[experts, outputs]"};
}

// Where the tensor of a slice lies in the file.
struct Part {
  std::string source;
  Form form = Form::other;
  int64_t expert = 0;
  Outputs outputs{};
  std::vector<int64_t> shape{};  // of the slice; unused for Form::other
};

// A slice of an expert, by the name of its tensor: PREFIX.experts.3.gate_proj.weight.
struct ExpertSlice {
  std::string target;  // the file's tensor
  int64_t expert = 0;
  Outputs outputs{};
  bool bias = false;
};
std::optional<ExpertSlice> expert_slice(std::string_view name) {
  const size_t place = name.rfind(experts_part);
  if (place == std::string::npos) return {};
  const size_t number = place + experts_part.size(), dot = name.find('.', number);
  if (dot == std::string::npos || dot == number || dot - number > 4) return {};
  ExpertSlice out;
  for (const char digit : name.substr(number, dot - number)) {
    if (digit < '0' || digit > '9') return {};
    out.expert = out.expert * 10 + (digit - '0');
  }
  const std::string_view rest = name.substr(dot + 1), module = rest.substr(0, rest.find('.'));
  out.bias = rest.ends_with(".bias");
  const bool down = module == "down_proj";
  out.outputs = gate_outputs;
  if (down) out.outputs = down_outputs;
  if (module == "up_proj") out.outputs = up_outputs;
  out.target = concat(name.substr(0, number), down ? "down_proj" : "gate_up_proj", out.bias ? bias_end : "");
  return out;
}

class GptOssFile : public TensorFile {
 public:
  explicit GptOssFile(std::unique_ptr<TensorFile> file) : file_(std::move(file)) {
    for (const std::string& name : file_->names()) {
      const size_t place = name.rfind(experts_part);
      const std::string tensor = place == std::string::npos ? std::string() : name.substr(place + experts_part.size());
      const std::string prefix = name.substr(0, name.size() - tensor.size());
      if (tensor == "gate_up_proj" || tensor == "down_proj")
        add(prefix, name, tensor == "gate_up_proj", Form::matrix);
      else if (tensor == "gate_up_proj_bias" || tensor == "down_proj_bias")
        add(prefix, name, tensor == "gate_up_proj_bias", Form::bias);
      else if (tensor == "gate_up_proj_blocks" || tensor == "down_proj_blocks")
        add(prefix, name, tensor == "gate_up_proj_blocks", Form::mxfp4);
      else if ((tensor == "gate_up_proj_scales" || tensor == "down_proj_scales") && file_->contains(blocks_of(name)))
        continue;  // read with the blocks
      else
        add_part(name, {.source = name});
    }
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, part] : parts_) out.push_back(name);
    return out;
  }
  bool contains(std::string_view name) const override { return parts_.contains(name); }
  std::string holder(std::string_view name) const override {
    if (const auto found = parts_.find(name); found != parts_.end()) return found->second.source;
    const std::optional<ExpertSlice> slice = expert_slice(name);
    if (!slice) return std::string(name);
    return !slice->bias && is_mxfp4_ ? slice->target + std::string(blocks_end) : slice->target;
  }
  std::optional<Holding> holding(std::string_view holder, std::span<const int64_t> slice,
                                 int64_t count) const override {
    const size_t place = holder.rfind(experts_part);
    if (place == std::string_view::npos || expert_slice(holder)) return std::nullopt;
    const bool gate_up = holder.substr(place + experts_part.size()).starts_with("gate_up_proj");
    const int64_t each = gate_up ? 2 : 1, experts = count / each, outputs = each * slice[0];
    Holding out;
    if (file_->contains(holder)) out.found = file_->outline(holder);
    if (slice.size() == 1)
      out.wanted = {experts, outputs};
    else if (holder.ends_with(blocks_end))
      out.wanted = {experts, outputs, slice[1] / mxfp4_group, mxfp4_group_bytes};
    else
      out.wanted = {experts, slice[1], outputs};
    return out;
  }
  TensorOutline outline(std::string_view name) const override {
    const Part& part = at(name);
    const TensorOutline source = file_->outline(part.source);
    if (part.form == Form::other) return source;
    return {part.form == Form::mxfp4 ? DType::bf16 : source.dtype, part.shape};
  }
  Tensor read(std::string_view name, std::vector<char>& storage) const override {
    const Part& part = at(name);
    std::vector<char> of_file;
    if (part.form == Form::other) return file_->read(part.source, storage);
    const Tensor source = file_->read(part.source, of_file);
    const Tensor out = storage_of(outline(name), storage);
    if (part.form == Form::mxfp4)
      read_mxfp4(part, source, out);
    else
      read_numbers(part, source, out);
    return out;
  }

 private:
  const Part& at(std::string_view name) const {
    const auto found = parts_.find(name);
    HONE_CHECK(found != parts_.end(), "the file has no tensor ", name);
    return found->second;
  }
  static std::string blocks_of(const std::string& scales) {
    return scales.substr(0, scales.size() - scales_end.size()) + std::string(blocks_end);
  }
  static std::string scales_of(const std::string& blocks) {
    return blocks.substr(0, blocks.size() - blocks_end.size()) + std::string(scales_end);
  }
  static Tensor storage_of(const TensorOutline& outline, std::vector<char>& storage) {
    Tensor out(nullptr, outline.dtype, DeviceKind::cpu, outline.shape);
    storage.resize(out.bytes());
    out.data = storage.data();
    return out;
  }
  void add_part(const std::string& name, Part part) {
    const auto [found, added] = parts_.emplace(name, part);
    HONE_CHECK(added, part.source, " and ", found->second.source, " both hold ", name,
               "; the file must have one of them");
  }
  // Experts, outputs and inputs of a tensor of the file; inputs are 0 for a bias.
  struct Sizes {
    int64_t experts, outputs, inputs;
  };
  Sizes sizes_of(const std::string& name, bool gate_up, Form form) const {
    const TensorOutline outline = file_->outline(name);
    const std::vector<int64_t>& shape = outline.shape;
    const FormDims dims = dims_of(form);
    const bool fits = shape.size() == dims.rank && shape[0] <= max_experts &&
                      std::ranges::all_of(shape, [](int64_t dim) { return dim >= 1; }) &&
                      (form != Form::mxfp4 || (shape[3] == mxfp4_group_bytes && outline.dtype == DType::u8));
    HONE_CHECK(fits, name, " is ", shape_text(shape), " of ", name_of(outline.dtype), ", wants ", dims.text,
               " with at most ", max_experts, " experts");
    const int64_t per_input = form == Form::mxfp4 ? mxfp4_group : 1;
    const Sizes out{shape[0], shape[dims.outputs], dims.inputs > 0 ? shape[dims.inputs] * per_input : 0};
    HONE_CHECK(!gate_up || out.outputs % 2 == 0, name, " has ", out.outputs,
               " outputs; gate and up want an even number");
    return out;
  }
  void check_scales(const std::string& blocks) const {
    const std::string name = scales_of(blocks);
    HONE_CHECK(file_->contains(name), "the file has ", blocks, " and lacks ", name);
    const TensorOutline outline = file_->outline(name);
    std::vector<int64_t> wanted = file_->outline(blocks).shape;
    wanted.pop_back();
    HONE_CHECK(outline.shape == wanted && outline.dtype == DType::u8, name, " is ", shape_text(outline.shape), " of ",
               name_of(outline.dtype), ", wants ", shape_text(wanted), " of u8");
  }
  void add(const std::string& prefix, const std::string& name, bool gate_up, Form form) {
    const Sizes sizes = sizes_of(name, gate_up, form);
    is_mxfp4_ = is_mxfp4_ || form == Form::mxfp4;
    if (form == Form::mxfp4) check_scales(name);
    const char* end = form == Form::bias ? ".bias" : ".weight";
    for (int64_t e = 0; e < sizes.experts; ++e) {
      const auto add_one = [&](const char* module, Outputs outputs) {
        std::vector<int64_t> shape{sizes.outputs / outputs.step};
        if (form != Form::bias) shape.push_back(sizes.inputs);
        add_part(concat(prefix, e, ".", module, end), {name, form, e, outputs, std::move(shape)});
      };
      if (gate_up) {
        add_one("gate_proj", gate_outputs);
        add_one("up_proj", up_outputs);
      } else {
        add_one("down_proj", down_outputs);
      }
    }
  }
  static void read_numbers(const Part& part, const Tensor& source, const Tensor& out) {
    const bool bias = part.form == Form::bias;
    const int64_t inputs = bias ? 1 : part.shape[1], all = source.dim(bias ? 1 : 2);  // all outputs of an expert
    const size_t width = size_of(source.dtype);
    const char* from = static_cast<const char*>(source.data) +
                       static_cast<size_t>(part.expert * inputs * all + part.outputs.first) * width;
    copy_elements(static_cast<char*>(out.data), {inputs, 1}, from, {part.outputs.step, all}, part.shape[0], inputs,
                  width);
  }
  void read_mxfp4(const Part& part, const Tensor& blocks, const Tensor& out) const {
    std::vector<char> of_scales;
    const Tensor scales = file_->read(scales_of(part.source), of_scales);
    const int64_t all = blocks.dim(1), groups = blocks.dim(2);
    for (int64_t i = 0; i < part.shape[0]; ++i) {
      const int64_t row = part.expert * all + part.outputs.first + i * part.outputs.step;
      decode_mxfp4(out.row<bf16>(i), static_cast<const uint8_t*>(blocks.data) + row * groups * mxfp4_group_bytes,
                   {static_cast<const uint8_t*>(scales.data) + row * groups, static_cast<size_t>(groups)});
    }
  }

  std::unique_ptr<TensorFile> file_;
  std::map<std::string, Part, std::less<>> parts_;
  bool is_mxfp4_ = false;
};

// The slices that one tensor of the file holds.
struct Fused {
  std::vector<std::pair<ExpertSlice, LazyTensor>> parts;

  Tensor read(const LazyTensor& fused, std::vector<char>& storage) const {
    Tensor out(nullptr, fused.dtype, DeviceKind::cpu, fused.shape);
    storage.resize(out.bytes());
    out.data = storage.data();
    const size_t width = size_of(fused.dtype);
    std::vector<char> of_part;
    for (const auto& [place, slice] : parts) {
      const Tensor from = slice.read(of_part);
      const int64_t inputs = place.bias ? 1 : slice.shape[1], all = fused.shape.back();
      char* to = storage.data() + static_cast<size_t>(place.expert * inputs * all + place.outputs.first) * width;
      copy_elements(to, {place.outputs.step, all}, static_cast<const char*>(from.data), {inputs, 1}, slice.shape[0],
                    inputs, width);
    }
    return out;
  }
};

std::vector<LazyTensor> fuse_experts(std::vector<LazyTensor> slices) {
  std::vector<LazyTensor> out;
  std::map<std::string, std::shared_ptr<Fused>> fused;
  for (LazyTensor& slice : slices) {
    std::optional<ExpertSlice> place = expert_slice(slice.name);
    if (!place) {
      out.push_back(std::move(slice));
      continue;
    }
    std::shared_ptr<Fused>& to = fused[place->target];
    if (!to) to = std::make_shared<Fused>();
    to->parts.emplace_back(std::move(*place), std::move(slice));
  }
  for (auto& [name, tensor] : fused) {
    const auto& [first, slice] = tensor->parts.front();
    int64_t experts = 0;
    for (const auto& [place, part] : tensor->parts) experts = std::max(experts, place.expert + 1);
    LazyTensor whole{.name = name, .dtype = slice.dtype, .shape = {experts}, .read = {}};
    if (!first.bias) whole.shape.push_back(slice.shape[1]);
    whole.shape.push_back(slice.shape[0] * first.outputs.step);
    whole.read = [tensor = tensor, outline = whole](std::vector<char>& storage) {
      return tensor->read(outline, storage);
    };
    out.push_back(std::move(whole));
  }
  return out;
}

[[maybe_unused]] const bool added =
    file_layouts().add("gpt_oss", {.read = [](std::unique_ptr<TensorFile> file) -> std::unique_ptr<TensorFile> {
                                     return std::make_unique<GptOssFile>(std::move(file));
                                   },
                                   .write = fuse_experts});

}  // namespace
}  // namespace hone
