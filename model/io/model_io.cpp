// Loads and saves models as Hugging Face folders.
#include <algorithm>
#include <mutex>
#include <set>

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
  std::vector<const Param*> added;  // parameters that the files lack; they start from their initial values
};

bool is_choice_bias(const Param* param) { return param->slices.front().name.ends_with(".e_score_correction_bias"); }

// The parameters that changes of config.json add, if the file lacks them: biases of the choice of experts
// (router_bias_update_rate). own_config: without the changes.
std::vector<const Param*> added_params(Model& model, const Json& own_config, const TensorFile& file,
                                       const std::string& source) {
  std::set<std::string> own_names;
  const std::unique_ptr<Model> own = make_model(own_config, source);
  for (const Param* param : own->base_params()) own_names.insert(param->slices.front().name);
  std::vector<const Param*> out;
  const std::vector<Param*> params = model.base_params();
  for (const Param* param : own->base_params()) {
    const std::string& name = param->slices.front().name;
    HONE_CHECK(!is_choice_bias(param) || std::ranges::any_of(params, is_choice_bias), source, ": the model has ", name,
               ", which router_bias_update_rate = 0 would take away; remove the key (model.router.bias_update_rate)");
  }
  for (const Param* param : params)
    if (const std::string& name = param->slices.front().name; !own_names.contains(name) && !file.contains(name))
      out.push_back(param);
  return out;
}

// Returns true if the file lacks all layers of multi-token prediction that the model has.
bool lacks_predictions(const Model& model, const TensorFile& file) {
  return mtp_of(model) && !file.contains(concat("model.layers.", model.shape().num_layers, ".eh_proj.weight"));
}

OpenedModel open_model(const std::filesystem::path& folder, const LoraConfig& lora, const JsonObject& changes = {}) {
  check_model_path(folder);
  const std::filesystem::path base = base_folder(folder);
  Json config = read_model_config(base);
  if (config.is_object() && needs_long_rope(folder)) config.set("use_long_rope", true);
  Json own_config = config;
  if (config.is_object())
    for (const auto& [key, value] : changes) config.set(key, value);
  std::unique_ptr<Model> model = make_model(config, config_source(base));
  std::unique_ptr<TensorFile> file = open_weights(base);
  if (lacks_predictions(*model, *file)) {
    log::warning(base.string(), ": config.json has num_nextn_predict_layers = ", mtp_of(*model)->size(),
                 ", the files have no such layers: the model predicts one token ahead");
    for (Json* one : {&config, &own_config}) one->set("num_nextn_predict_layers", int64_t{0});
    model = make_model(config, config_source(base));
  }
  std::vector<const Param*> added;
  if (!changes.empty()) added = added_params(*model, own_config, *file, config_source(base));
  add_adapters(*model, folder, base, lora);
  std::vector<FileSlice> slices = match_slices(*model, *file, base, added);
  return {std::move(model), std::move(file), std::move(slices), std::move(added)};
}

}  // namespace

bool lacks_predictions(const Model& model, const std::filesystem::path& base) {
  return mtp_of(model) && lacks_predictions(model, *open_weights(base));
}

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
  for (const FileSlice& slice : opened.slices) {
    const Tensor tensor = opened.file->read(slice.name, storage);
    check_finite(slice.name, tensor, *opened.file, folder);
    read_slice(context, staging, slice, tensor);
  }
  for (const Param* param : opened.added) initialize_param(context, *param, options.seed);
  if (is_adapter(folder))
    read_adapter(context, *model, folder);
  else
    for (const Param* param : model->adapter_params()) initialize_param(context, *param, options.seed);
  return model;
}

// transformers ignores a bias of the choice of experts in a family that has none, and then chooses other experts.
static void warn_of_choice_bias(Model& model, const Json& config) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const Json* type = config.find("model_type");
  if (!type || *type == Json("deepseek_v3") || *type == Json("hone_decoder")) return;
  const std::vector<Param*> params = model.base_params();
  if (std::ranges::none_of(params, is_choice_bias)) return;
  const std::scoped_lock lock(mutex);
  if (told.insert(type->as_string()).second)
    log::warning(
        "the routers have e_score_correction_bias (bias_update_rate), which transformers does not know in the "
        "family ",
        type->as_string(), ": it ignores these tensors, and its logits differ");
}

void save_model(Context& context, Model& model, const std::filesystem::path& folder, DType dtype,
                const Json& generation_config, std::span<const float> value_head) {
  HONE_CHECK(dtype == DType::f32 || dtype == DType::bf16, "a model is saved as f32 or bf16, not ", name_of(dtype));
  HONE_CHECK(!model.lora(),
             "a model with adapters is saved once they are merged (merge_lora), or as an adapter (save_adapter)");
  make_folder(folder);
  Json config = model.config();
  set_token_ids(config, generation_config);
  for (const char* key : {"torch_dtype", "dtype"})  // transformers 4's name, and 5's; last, as a model loaded has none
    config.set(key, dtype == DType::f32 ? "float32" : "bfloat16");
  write_file_atomic(folder / "config.json", config.dump(2) + "\n");
  warn_of_choice_bias(model, config);
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
