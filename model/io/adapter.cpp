#include "model/io/adapter.h"

#include <algorithm>

#include "core/io/file.h"
#include "core/io/gguf/gguf.h"
#include "core/io/json.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/model_files.h"
#include "model/io/param_slices.h"
#include "model/modules.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr const char* config_name = "adapter_config.json";

Json read_config(const fs::path& folder) {
  return parse_json(read_file(folder / config_name), (folder / config_name).string());
}

}  // namespace

bool is_adapter(const fs::path& folder) { return fs::exists(folder / config_name); }

fs::path base_folder(const fs::path& folder) {
  if (!is_adapter(folder)) return folder;
  const std::string source = (folder / config_name).string(), key = "base_model_name_or_path";
  const Json config = read_config(folder);
  const std::string& name = config.at(key, source).as_string(source + ": " + key);
  for (const fs::path& path : {fs::path(name), folder / name}) {
    if (!fs::is_directory(path) && !is_gguf(path)) continue;
    HONE_CHECK(!is_adapter(path), source, ": ", key, " is ", name, ", an adapter itself; merge it first (hone export)");
    return path;
  }
  fail(source, ": ", key, " is ", name, ", which does not exist; set it to the folder of the base model");
}

fs::path tokenizer_folder(const fs::path& folder) {
  return is_adapter(folder) && !Tokenizer::is_in(folder) ? base_folder(folder) : folder;
}

LoraConfig read_lora_config(const fs::path& folder) {
  return lora_config_of(read_config(folder), (folder / config_name).string());
}

bool needs_long_rope(const fs::path& folder) {
  if (!is_adapter(folder)) return false;
  const Json config = read_config(folder);
  const Json* value = config.find("use_long_rope");
  return value && value->as_bool(concat((folder / config_name).string(), ": use_long_rope"));
}

static bool has_long_rope(const Model& model) {
  const Json config = model.config();
  const Json* value = config.find("use_long_rope");
  return value && value->is_bool() && value->as_bool();
}

void save_adapter(Context& context, Model& model, const fs::path& folder, DType dtype,
                  std::span<const float> value_head) {
  HONE_CHECK(model.lora(), "the model has no adapters to save");
  const std::vector<Linear*> linear_modules = model.linear_modules();
  const bool transposed = std::ranges::any_of(
      linear_modules, [](const Linear* linear) { return linear->lora && linear->weight.transposed; });
  const std::string base = fs::absolute(model.lora()->base).lexically_normal().string();
  make_folder(folder);
  Json config = adapter_config_of(model.lora()->config, base, transposed, !value_head.empty());
  if (has_long_rope(model)) config.set("use_long_rope", true);
  write_file_atomic(folder / config_name, config.dump(2) + "\n");
  std::vector<LazyTensor> tensors = slices_to_save(context, file_slices(model.adapter_params()), dtype);
  if (!value_head.empty()) tensors.push_back(value_head_to_save(adapter_value_head, value_head));
  write_safetensors(folder / adapter_tensors, std::move(tensors));
}

void read_adapter(Context& context, Model& model, const fs::path& folder) {
  HONE_CHECK(!needs_long_rope(folder) || has_long_rope(model), (folder / config_name).string(),
             ": use_long_rope is true, so the adapter needs its base with the long factors of longrope: load the base "
             "with use_long_rope");
  const std::unique_ptr<TensorFile> file = open_safetensors(folder / adapter_tensors);
  const std::vector<FileSlice> slices = file_slices(model.adapter_params());
  std::vector<std::string> problems;
  for (const FileSlice& slice : slices) check_slice(slice, *file, problems);
  for (const std::string& name : file->names())
    if (name != adapter_value_head && std::ranges::find(slices, name, &FileSlice::name) == slices.end())
      problems.push_back("surplus " + name);
  throw_problems(std::move(problems), folder, config_name);
  Arena staging(context.device());
  std::vector<char> storage;
  for (const FileSlice& slice : slices) {
    const Tensor tensor = file->read(slice.name, storage);
    check_finite(slice.name, tensor, *file, folder);
    read_slice(context, staging, slice, tensor);
  }
}

AdapterValues::AdapterValues(Context& context, Model& model, const fs::path& folder) {
  constexpr size_t alignment = 256;
  const auto padded = [](const Tensor& x) { return (x.bytes() + alignment - 1) / alignment * alignment; };
  size_t bytes = 0;
  for (const Param* param : model.adapter_params()) bytes += padded(param->value);
  bytes_ = Buffer(context.device(), bytes);
  char* at = static_cast<char*>(bytes_.data());
  for (const Param* param : model.adapter_params()) {
    values_.push_back(param->value);
    values_.back().data = at;
    at += padded(param->value);
  }
  const AdapterScope scope(model, values_);
  read_adapter(context, model, folder);
}

static Json generation_config_of(const fs::path& from) {
  const Json config = read_generation_config(from);
  const fs::path folder = tokenizer_folder(from);
  return Tokenizer::is_in(folder) ? with_stop_ids(config, Tokenizer::load(folder)) : config;
}

DType dtype_of_files(const fs::path& model) {
  check_model_path(model);
  const std::unique_ptr<TensorFile> file = open_weights(base_folder(model));
  const std::vector<std::string> names = file->names();
  return !names.empty() && file->outline(names.front()).dtype == DType::bf16 ? DType::bf16 : DType::f32;
}

void save_derived_model(Context& context, Model& model, const fs::path& from, const fs::path& to,
                        std::optional<DType> dtype) {
  save_model(context, model, to, dtype ? *dtype : dtype_of_files(from), generation_config_of(from),
             load_value_head(context, from));
}

void export_model(const fs::path& from, const fs::path& to, std::optional<DType> dtype) {
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  const std::unique_ptr<Model> model = load_model(context, from);
  if (model->lora()) merge_lora(context, *model);
  save_derived_model(context, *model, from, to, dtype);
}

}  // namespace hone
