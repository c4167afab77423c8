#include "model/io/gguf_model.h"

#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/base/suggest.h"
#include "core/text/tokenizer/gguf_tokenizer.h"
#include "model/io/gguf/latent.h"
#include "model/model.h"

namespace hone {
namespace {

// Tensors that are no parameters of a model here. read_gguf_rope reads the factors.
bool is_buffer(std::string_view name) {
  return name == "rope_freqs.weight" || name.starts_with("rope_factors_") || name.ends_with(".attn_rot_embd");
}

const GgufArchitecture& architecture_of(const GgufReader& file, const std::string& name) {
  const GgufArchitecture* found = gguf_architectures().find(name);
  HONE_CHECK(found, file.source(), ": key 'general.architecture' is '", name,
             "'; supported: ", join(gguf_architectures().names()));
  return *found;
}

void write_row(std::span<const float> row, DType dtype, char* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, row.data(), row.size_bytes());
    return;
  }
  auto* out = reinterpret_cast<bf16*>(to);
  for (size_t i = 0; i < row.size(); ++i) out[i] = to_bf16(row[i]);
}

// Column r of a matrix [columns, rows] of the dtype.
void write_column(std::span<const float> values, DType dtype, char* matrix, int64_t r, int64_t rows) {
  for (size_t i = 0; i < values.size(); ++i)
    write_row(values.subspan(i, 1), dtype,
              matrix + (i * static_cast<size_t>(rows) + static_cast<size_t>(r)) * size_of(dtype));
}

// Throws Error unless the file has tensors for its numbers of layers and experts.
void check_counts(const GgufKeys& keys) {
  const std::vector<GgufTensor>& tensors = keys.file().tensors();
  const int64_t layers = keys.count("block_count"), num_tensors = std::ssize(tensors);
  keys.require(layers <= num_tensors, "key '", keys.full("block_count"), "' is ", layers, "; the file has ",
               num_tensors, " tensors");
  if (keys.number("expert_count", 0) == 0) return;
  const int64_t experts = keys.count("expert_count");
  int64_t with_experts = 0;
  for (const GgufTensor& tensor : tensors) {
    if (!tensor.name.ends_with(".ffn_down_exps.weight")) continue;
    ++with_experts;
    keys.require(tensor.shape[0] == experts, "key '", keys.full("expert_count"), "' is ", experts, "; tensor '",
                 tensor.name, "' has ", tensor.shape[0], " experts");
  }
  const int64_t dense = keys.file().integer(keys.full("leading_dense_block_count"), 0);
  keys.require(with_experts > 0 && dense >= 0 && with_experts >= layers - dense, with_experts,
               " layers have a tensor ffn_down_exps.weight, ", layers - dense,
               " need it; files with one tensor for each expert are not supported");
}

}  // namespace

int64_t interleaved_row(int64_t row, int64_t head_rows) {
  const int64_t half = head_rows / 2, head = row / head_rows, within = row % head_rows;
  return head * head_rows + within % half * 2 + within / half;
}

GgufModel::GgufModel(const std::filesystem::path& path, DType dtype)
    : file_(path),
      architecture_name_(file_.text("general.architecture", "")),
      architecture_(&architecture_of(file_, architecture_name_)),
      dtype_(dtype) {
  HONE_CHECK(dtype == DType::f32 || dtype == DType::bf16, "gguf: weights are read as f32 or bf16");
  const GgufTensor *embedding = file_.find_tensor("token_embd.weight"), *head = file_.find_tensor("output.weight");
  HONE_CHECK(embedding && embedding->shape.size() == 2, file_.source(),
             ": no tensor token_embd.weight with two dims: not a language model");
  tied_ = !head || (head->type == embedding->type && head->bytes == embedding->bytes);
  for (const GgufTensor& tensor : file_.tensors())
    if (!is_buffer(tensor.name) && !(tied_ && &tensor == head)) add(tensor);
  std::ranges::sort(sources_, {}, &NamedSource::name);
}

void GgufModel::check_type(const GgufTensor& tensor) const {
  HONE_CHECK(tensor.type->dequantize, file_.source(), ": tensor '", tensor.name, "' has the type ", tensor.type->name,
             ", which is not supported; supported: ", supported_gguf_types());
}

void GgufModel::add(const GgufTensor& tensor) {
  check_type(tensor);
  if (architecture_->latent_attention && is_latent_part(tensor.name)) {
    if (!is_latent_keys(tensor.name)) return;  // read with the keys
    const GgufTensor* values = file_.find_tensor(latent_values_name(tensor.name));
    HONE_CHECK(values, file_.source(), ": tensor '", latent_values_name(tensor.name), "' is missing");
    check_type(*values);
    sources_.push_back({.name = latent_name(tensor.name),
                        .tensor = &tensor,
                        .shape = latent_shape(tensor, *values, file_.source()),
                        .dtype = dtype_,
                        .latent_values = values});
    return;
  }
  const GgufKeys keys(file_, architecture_name_);
  const std::optional<GgufTranslation> found = hugging_face_name(*architecture_, tensor.name);
  // A name that is not known is reported as surplus when the model is loaded.
  NamedSource source{.name = found ? found->name : tensor.name,
                     .tensor = &tensor,
                     .shape = tensor.shape,
                     .dtype = found && found->entry->keep_f32 ? DType::f32 : dtype_};
  if (source.name.find('#') != std::string::npos) return add_experts(tensor, source);
  source.adds_one = architecture_->adds_one_to_norms && is_norm(source.name);
  source.transposed = architecture_->transposed && tensor.shape.size() == 2 && tensor.name.starts_with("blk.");
  if (source.transposed) std::swap(source.shape[0], source.shape[1]);
  if (found && found->entry->one_row && source.shape.size() == 1) source.shape.insert(source.shape.begin(), 1);
  const auto is = [&](std::string_view part) {
    return tensor.name.ends_with(concat(part, ".weight")) || tensor.name.ends_with(concat(part, ".bias"));
  };
  if (architecture_->interleaved_rope && (is(".attn_q") || is(".attn_k"))) {
    const int64_t heads = keys.count("attention.head_count");
    source.interleaved_heads = is(".attn_q") ? heads : keys.count("attention.head_count_kv", heads);
    const int64_t rows = tensor.shape.front();
    HONE_CHECK(rows % (2 * source.interleaved_heads) == 0, file_.source(), ": tensor '", tensor.name, "' has ", rows,
               " rows, which are not ", source.interleaved_heads, " heads of even size");
  }
  sources_.push_back(std::move(source));
}

void GgufModel::add_experts(const GgufTensor& tensor, const NamedSource& source) {
  const size_t rank = tensor.name.ends_with(".bias") ? 2 : 3;
  HONE_CHECK(tensor.shape.size() == rank && tensor.shape[0] <= max_gguf_experts, file_.source(), ": tensor '",
             tensor.name, "' has ", tensor.shape.size(), " dims and ", tensor.shape[0], " experts; it must have ", rank,
             " dims and at most ", max_gguf_experts, " experts");
  const size_t place = source.name.find('#');
  const int64_t rows = tensor.rows() / tensor.shape[0];
  for (int64_t e = 0; e < tensor.shape[0]; ++e) {
    NamedSource one = source;
    one.name.replace(place, 1, std::to_string(e));
    one.shape.erase(one.shape.begin());
    one.first_row = e * rows;
    sources_.push_back(std::move(one));
  }
}

Json GgufModel::config() const {
  const GgufKeys keys(file_, architecture_name_);
  Json config = architecture_->config(keys, tied_);
  check_counts(keys);  // before a model with as many parts is made
  config.set("vocab_size", file_.find_tensor("token_embd.weight")->rows());
  const Json generation = gguf_generation_config(file_);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    config.set(key,
               generation.find(key) ? *generation.find(key) : Json());  // null: not the default of a published model
  return make_model(config, file_.source())->config();
}

std::vector<std::string> GgufModel::names() const {
  std::vector<std::string> out;
  for (const NamedSource& source : sources_) out.push_back(source.name);
  return out;
}

bool GgufModel::contains(std::string_view name) const {
  return std::ranges::binary_search(sources_, name, {}, [](const NamedSource& s) { return std::string_view(s.name); });
}

const GgufModel::NamedSource& GgufModel::source_of(std::string_view name) const {
  const auto found = std::ranges::find(sources_, name, &NamedSource::name);
  HONE_CHECK(found != sources_.end(), file_.source(), ": no tensor '", name, "'", suggestion(name, names()));
  return *found;
}

TensorOutline GgufModel::outline(std::string_view name) const {
  const NamedSource& source = source_of(name);
  return {source.dtype, source.shape};
}

Tensor GgufModel::read(std::string_view name, std::vector<char>& storage) const {
  const NamedSource& source = source_of(name);
  const GgufTensor& tensor = *source.tensor;
  Tensor out(nullptr, source.dtype, DeviceKind::cpu, source.shape);
  storage.resize(out.bytes());
  out.data = storage.data();
  if (source.latent_values) {
    read_latent(tensor, *source.latent_values, [&](int64_t row, std::span<const float> numbers) {
      write_row(numbers, source.dtype,
                storage.data() + static_cast<size_t>(row) * numbers.size() * size_of(source.dtype));
    });
    return out;
  }
  const bool is_bias = tensor.shape.size() == 1 && source.interleaved_heads > 0;
  const int64_t columns = tensor.columns(), rows = out.size() / columns;
  const size_t width = size_of(source.dtype), row_bytes = static_cast<size_t>(columns) * width;
  parallel_for(rows, std::max<int64_t>(1, 65536 / columns), [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = begin; r < end; ++r) {
      const int64_t heads = is_bias ? 0 : source.interleaved_heads;
      dequantize(*tensor.type, tensor.row_bytes(source.first_row + (heads > 0 ? interleaved_row(r, rows / heads) : r)),
                 row);
      if (is_bias) {
        const std::vector<float> stored = row;
        for (int64_t i = 0; i < columns; ++i)
          row[static_cast<size_t>(i)] =
              stored[static_cast<size_t>(interleaved_row(i, columns / source.interleaved_heads))];
      }
      if (source.adds_one)
        for (float& number : row) number -= 1;
      if (source.transposed)
        write_column(row, source.dtype, storage.data(), r, rows);
      else
        write_row(row, source.dtype, storage.data() + static_cast<size_t>(r) * row_bytes);
    }
  });
  return out;
}

}  // namespace hone
