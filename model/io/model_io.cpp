// Loads and saves models as Hugging Face folders.
#include <algorithm>

#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/text/tokenizer/tokenizer.h"
#include "kernels/elementwise/cast.h"
#include "model/io/adapter.h"
#include "model/io/file_layout.h"
#include "model/io/model_files.h"
#include "model/io/model_folder.h"
#include "model/io/param_slices.h"
#include "model/lora.h"
#include "model/mtp.h"

namespace hone {
namespace {

constexpr std::string_view value_head_name = "score.weight";

Json generation_defaults(const Json& config) {
  JsonObject out{{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* id = config.find(key); id && !id->is_null()) out.emplace_back(key, *id);
  return out;
}

// Adds the adapters of the folder, else those of the options, if any. Their values are read later.
void add_adapters(Model& model, const std::filesystem::path& folder, const std::filesystem::path& base,
                  const LoraConfig& asked) {
  LoraConfig config = asked;
  if (is_adapter(folder)) {
    config = read_lora_config(folder);
    if (asked.r > 0) config.lora_dropout = asked.lora_dropout;
  }
  if (config.r == 0) return;
  try {
    model.add_lora(config);
  } catch (const Error& error) {
    if (!is_adapter(folder)) throw;
    fail((folder / "adapter_config.json").string(), ": ", error.what());  // the file names the target modules
  }
  model.lora()->base = base;
  if (asked.r == 0 || !is_adapter(folder)) return;
  const std::unique_ptr<Model> other = make_model(model.config(), folder.string());
  other->add_lora(asked);
  const auto text = [](const LoraConfig& c) {
    return concat("r ", c.r, ", lora_alpha ", c.lora_alpha, ", use_rslora ", c.use_rslora ? "true" : "false",
                  ", target_modules ", join(c.target_modules));
  };
  const std::string found = text(model.lora()->config), wanted = text(other->lora()->config);
  HONE_CHECK(found == wanted, folder.string(), ": the adapter has ", found, "; the settings need ", wanted);
}

// A model without memory, and the tensors of its files.
struct OpenedModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<TensorFile> file;
  std::vector<FileSlice> slices;
};

// transformers leaves layers of multi-token prediction out of its files, but not out of config.json. Returns true if
// the file lacks all that the model has.
bool lacks_predictions(const Model& model, const TensorFile& file) {
  return mtp_of(model) && !file.contains(concat("model.layers.", model.shape().num_layers, ".eh_proj.weight"));
}

OpenedModel open_model(const std::filesystem::path& folder, const LoraConfig& lora, const JsonObject& changes = {}) {
  check_model_path(folder);
  const std::filesystem::path base = base_folder(folder);
  Json config = read_model_config(base);
  if (config.is_object() && needs_long_rope(folder)) config.set("use_long_rope", true);
  if (config.is_object())
    for (const auto& [key, value] : changes) config.set(key, value);
  std::unique_ptr<Model> model = make_model(config, config_source(base));
  std::unique_ptr<TensorFile> file = open_weights(base);
  if (lacks_predictions(*model, *file)) {
    log::warning(base.string(), ": config.json has num_nextn_predict_layers = ", mtp_of(*model)->size(),
                 ", the files have no such layers: the model predicts one token ahead");
    config.set("num_nextn_predict_layers", int64_t{0});
    model = make_model(config, config_source(base));
  }
  add_adapters(*model, folder, base, lora);
  std::vector<FileSlice> slices = match_slices(*model, *file, base);
  return {std::move(model), std::move(file), std::move(slices)};
}

}  // namespace

std::unique_ptr<Model> read_model_folder(const std::filesystem::path& folder, const LoraConfig& lora,
                                         const JsonObject& config_changes) {
  return open_model(folder, lora, config_changes).model;
}

std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& folder, const LoadOptions& options) {
  return load_changed_model(context, folder, options, {});
}

std::unique_ptr<Model> load_changed_model(Context& context, const std::filesystem::path& folder,
                                          const LoadOptions& options, const JsonObject& config_changes) {
  OpenedModel opened = open_model(folder, options.lora, config_changes);
  std::unique_ptr<Model> model = std::move(opened.model);
  model->allocate(context, options.dtype, options.gradients);
  Arena staging(context.device());
  std::vector<char> storage;
  for (const FileSlice& slice : opened.slices)
    read_slice(context, staging, slice, opened.file->read(slice.name, storage));
  if (is_adapter(folder))
    read_adapter(context, *model, folder);
  else
    for (const Param* param : model->adapter_params()) initialize_param(context, *param, options.seed);
  return model;
}

void save_model(Context& context, Model& model, const std::filesystem::path& folder, DType dtype,
                const Json& generation_config, std::span<const float> value_head) {
  HONE_CHECK(dtype == DType::f32 || dtype == DType::bf16, "a model is saved as f32 or bf16, not ", name_of(dtype));
  HONE_CHECK(!model.lora(),
             "a model with adapters is saved once they are merged (merge_lora), or as an adapter (save_adapter)");
  make_folder(folder);
  Json config = model.config();
  for (const char* key : {"torch_dtype", "dtype"})
    config.set(key, dtype == DType::f32 ? "float32" : "bfloat16");  // transformers 4's name, and 5's
  write_file_atomic(folder / "config.json", config.dump(2) + "\n");
  const Json generation = generation_config.is_object() && !generation_config.as_object().empty()
                              ? generation_config
                              : generation_defaults(config);
  write_file_atomic(folder / "generation_config.json", generation.dump(2) + "\n");
  std::vector<LazyTensor> tensors = slices_to_save(context, slices_of_file(model), dtype);
  if (const FileLayout layout = file_layout(config); layout.write) tensors = layout.write(std::move(tensors));
  if (!value_head.empty()) {
    HONE_CHECK(static_cast<int64_t>(value_head.size()) == model.shape().hidden_size, value_head_name, " has ",
               value_head.size(), " numbers, the model is ", model.shape().hidden_size, " wide");
    tensors.push_back(value_head_to_save(value_head_name, value_head));
  }
  write_safetensors(folder / "model.safetensors", std::move(tensors));
}

std::vector<float> load_value_head(Context& context, const std::filesystem::path& folder) {
  const bool adapter = is_adapter(folder);
  const std::unique_ptr<TensorFile> file = adapter ? open_safetensors(folder / adapter_tensors) : open_weights(folder);
  const std::string_view name = adapter ? adapter_value_head : value_head_name;
  if (!file->contains(name)) return {};
  std::vector<char> storage;
  const Tensor weight = file->read(name, storage);
  HONE_CHECK(weight.rank == 2 && weight.dim(0) == 1, folder.string(), ": ", name, " is ", shape_text(weight.dims()),
             ", a reward model's has one row");
  Arena staging(context.device());
  const Tensor raw = staging.take(weight.dtype, weight.dims()), numbers = staging.take(DType::f32, {weight.size()});
  context.copy(raw, weight);
  cast(context, numbers, raw.view({weight.size()}));
  std::vector<float> out(static_cast<size_t>(weight.size()));
  context.copy(host_view(std::span(out)), numbers);
  return out;
}

void check_tokenizer(const Model& model, const Tokenizer& tokenizer) {
  HONE_CHECK(tokenizer.vocab_size() <= model.shape().vocab_size,
             "the tokenizer does not belong to the model: its largest id is ", tokenizer.vocab_size() - 1,
             ", the model's vocabulary has ", model.shape().vocab_size, " entries");
}

}  // namespace hone
