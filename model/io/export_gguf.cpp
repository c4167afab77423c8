#include "model/io/export_gguf.h"

#include <algorithm>
#include <unordered_map>

#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/gguf/gguf_writer.h"
#include "core/text/tokenizer/gguf_tokenizer_write.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/adapter.h"
#include "model/io/gguf/latent.h"
#include "model/io/gguf_model.h"
#include "model/io/model_files.h"
#include "model/io/model_folder.h"
#include "model/io/param_slices.h"
#include "model/modules.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

struct NamedArchitecture {
  std::string name;
  const GgufArchitecture* architecture;
};

NamedArchitecture architecture_for(const Json& config, const fs::path& from) {
  const std::string& family = config.at("model_type", "config.json").as_string("model_type");
  std::vector<std::string> known;
  for (const std::string& name : gguf_architectures().names()) {
    const GgufArchitecture& architecture = gguf_architectures().at(name);
    if (std::ranges::find(architecture.model_types, family) != architecture.model_types.end())
      return {name, &architecture};
    known.insert(known.end(), architecture.model_types.begin(), architecture.model_types.end());
  }
  fail(from.string(), ": a model of the family '", family, "' cannot be written as GGUF; supported: ", join(known));
}

void warn_about_windows(const Json& config, const fs::path& from) {
  const auto number = [&](const char* key) {
    const Json* value = config.find(key);
    return value && value->is_int() ? value->as_int() : 0;
  };
  const bool qwen = config.find("use_sliding_window") && *config.find("use_sliding_window") == Json(true);
  const Json& family = config.at("model_type", "config.json");
  const bool slides = qwen || family == Json("mistral") || family == Json("mixtral") || family == Json("phi3");
  if (slides && number("sliding_window") > 0 && number("sliding_window") < number("max_position_embeddings"))
    log::warning(from.string(), ": llama.cpp reads all earlier tokens, this model the last ", number("sliding_window"),
                 "; longer texts get other results there");
}

// The numbers of a slice, one row after the other, rows in the file's order.
std::vector<float> numbers_of(const FileSlice& slice, int64_t interleaved_heads) {
  const Tensor value = slice.value();
  const int64_t rows = value.dim(0), columns = value.row_size();
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t to = interleaved_heads > 0 ? interleaved_row(r, rows / interleaved_heads) : r;
    std::copy_n(value.row<float>(r), columns, out.data() + to * columns);
  }
  return out;
}

// As in llama.cpp's converter: routers, vectors and everything that is no weight are F32.
const GgufType& type_of(std::string_view name, size_t rank, int64_t columns, const GgufType& wanted) {
  const bool router = name.find(".ffn_gate_inp") != std::string_view::npos;
  if (rank == 1 || router || name == "position_embd.weight" || !name.ends_with(".weight"))
    return gguf_type_named("F32");
  return columns % wanted.block_size == 0 ? wanted : gguf_type_named("F16");
}

// One tensor of the file, which has a slice for each expert, or one slice.
struct PlannedTensor {
  std::string name;
  std::vector<FileSlice> slices;
  int64_t interleaved_heads = 0;
  bool has_experts = false, one_row = false, adds_one = false;
};

std::string bytes_of(const PlannedTensor& tensor, const GgufType& type) {
  std::string out;
  for (const FileSlice& slice : tensor.slices) {
    std::vector<float> numbers = numbers_of(slice, tensor.interleaved_heads);
    if (tensor.adds_one)
      for (float& number : numbers) number += 1;
    out += encode_gguf(type, numbers);
  }
  return out;
}

void add_tensor(PlannedTensor tensor, const GgufType& wanted, GgufWriter& out) {
  const FileSlice& slice = tensor.slices.front();
  std::vector<int64_t> dims = {slice.rows};
  if (slice.param->shape.size() == 2) dims.push_back(slice.param->shape[1]);
  if (tensor.has_experts) dims.insert(dims.begin(), std::ssize(tensor.slices));
  if (tensor.one_row) dims.erase(dims.begin());
  const GgufType& type = type_of(tensor.name, dims.size(), dims.back(), wanted);
  const std::string name = tensor.name;
  out.add_tensor(name, type, std::move(dims), [tensor = std::move(tensor), &type] { return bytes_of(tensor, type); });
}

void add_latent(const FileSlice& slice, const Json& config, const GgufType& wanted, GgufWriter& out) {
  const auto count = [&](const char* key) { return config.at(key, "config.json").as_int(key); };
  add_latent_tensors(
      slice.name,
      {.heads = count("num_attention_heads"),
       .nope = count("qk_nope_head_dim"),
       .value = count("v_head_dim"),
       .rank = count("kv_lora_rank")},
      [slice] { return numbers_of(slice, 0); },
      [&wanted](int64_t columns) -> const GgufType& { return type_of(".weight", 3, columns, wanted); }, out);
}

// The tensors in the order of their first slices.
std::vector<PlannedTensor> plan_tensors(std::span<const FileSlice> slices, const GgufArchitecture& architecture,
                                        const ModelShape& shape, const std::string& architecture_name) {
  std::vector<PlannedTensor> out;
  std::unordered_map<std::string, size_t> with_experts;
  for (const FileSlice& slice : slices) {
    const std::optional<GgufTranslation> found = gguf_name(architecture, slice.name);
    HONE_CHECK(found, "export: the parameter ", slice.name, " has no place in a GGUF file of the architecture ",
               architecture_name);
    if (const auto known = with_experts.find(found->name); known != with_experts.end()) {
      HONE_CHECK(found->expert == std::ssize(out[known->second].slices), "export: ", slice.name, " is not in order");
      out[known->second].slices.push_back(slice);
      continue;
    }
    PlannedTensor tensor{.name = found->name, .slices = {slice}, .has_experts = found->expert >= 0};
    if (tensor.has_experts) with_experts[found->name] = out.size();
    tensor.one_row = found->entry->one_row;
    tensor.adds_one = architecture.adds_one_to_norms && is_norm(slice.name);
    if (architecture.interleaved_rope && tensor.name.find(".attn_q.") != std::string::npos)
      tensor.interleaved_heads = shape.num_attention_heads;
    if (architecture.interleaved_rope && tensor.name.find(".attn_k.") != std::string::npos)
      tensor.interleaved_heads = shape.num_kv_heads;
    out.push_back(std::move(tensor));
  }
  return out;
}

void add_tensors(Model& model, const GgufArchitecture& architecture, const GgufType& type, GgufWriter& out) {
  std::vector<FileSlice> slices = file_slices(model.params());
  if (architecture.latent_attention) {
    const Json config = model.config();
    for (const FileSlice& slice : slices)
      if (is_latent(slice.name)) add_latent(slice, config, type, out);
    std::erase_if(slices, [](const FileSlice& slice) { return is_latent(slice.name); });
  }
  std::vector<PlannedTensor> tensors = plan_tensors(slices, architecture, model.shape(), out.architecture());
  constexpr const char *embedding = "token_embd.weight", *head = "output.weight";
  const auto named = [&](const char* name) { return std::ranges::find(tensors, name, &PlannedTensor::name); };
  if (architecture.always_has_head && named(head) == tensors.end()) {
    PlannedTensor copy = *named(embedding);
    copy.name = head;
    tensors.push_back(std::move(copy));
  }
  for (PlannedTensor& tensor : tensors) add_tensor(std::move(tensor), type, out);
}

// llama.cpp's numbers.
int64_t file_type_of(std::string_view type) {
  if (type == "F32") return 0;
  if (type == "F16") return 1;
  return type == "Q8_0" ? 7 : 32;
}

void write_general(const fs::path& from, const GgufType& type, GgufWriter& out) {
  const fs::path path = fs::absolute(from).lexically_normal();
  out.set_text("general.type", "model");
  out.set_text("general.name", (path.has_filename() ? path : path.parent_path()).stem().string());
  out.set_u32("general.file_type", file_type_of(type.name));
  out.set_u32("general.quantization_version", 2);
  const Json generation = read_generation_config(from);
  const auto set = [&](const char* key, const char* field, bool whole) {
    const Json* value = generation.find(field);
    if (!value || !value->is_number()) return;
    whole ? out.set_u32(key, value->as_int(field)) : out.set_f32(key, value->as_double());
  };
  set("general.sampling.temp", "temperature", false);
  set("general.sampling.top_k", "top_k", true);
  set("general.sampling.top_p", "top_p", false);
  set("general.sampling.min_p", "min_p", false);
  set("general.sampling.penalty_repeat", "repetition_penalty", false);
}

}  // namespace

void export_gguf(const fs::path& from, const fs::path& to, const GgufType& type) {
  HONE_CHECK(!fs::exists(fs::symlink_status(to)), to.string(), ": already exists; give a new file");
  check_model_path(from);
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  // GGUF files of these architectures have no layers of multi-token prediction.
  const std::unique_ptr<Model> model =
      load_changed_model(context, from, {}, {{"num_nextn_predict_layers", int64_t{0}}});
  if (model->lora()) merge_lora(context, *model);
  const Json config = model->config();
  const NamedArchitecture target = architecture_for(config, from);
  warn_about_windows(config, from);
  GgufWriter out(target.name);
  write_general(from, type, out);
  target.architecture->write_keys(config, out);
  if (const fs::path tokenizer = tokenizer_folder(from); Tokenizer::is_in(tokenizer))
    write_gguf_tokenizer(tokenizer, model->shape().vocab_size, out);
  add_tensors(*model, *target.architecture, type, out);
  const fs::path temporary = to.string() + ".tmp";
  try {
    out.write(temporary);
    fs::rename(temporary, to);
  } catch (...) {  // nothing half-written is left, whatever the reason
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace hone
