#include "model/io/adapter.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/gguf/gguf.h"
#include "core/io/json.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/fused_experts.h"
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

// The shortest end of a module's name, of `parts` parts or more, that only adapted modules have; else the whole name.
std::string shortest_target(const std::string& module, int parts, const std::set<std::string>& bare) {
  size_t dot = module.size();
  for (int i = 0; i < parts && dot != std::string::npos && dot > 0; ++i) dot = module.rfind('.', dot - 1);
  if (dot == std::string::npos) return module;
  const std::string end = module.substr(dot);
  return std::ranges::any_of(bare, [&](const std::string& one) { return one.ends_with(end); }) ? module : end.substr(1);
}

struct AdaptedModules {
  std::vector<std::string> adapted;
  std::set<std::string> bare;  // the others
  bool any_experts = false;    // the model has experts, with adapters or without
};
AdaptedModules adapted_modules(Model& model) {
  constexpr std::string_view end = ".weight", before = "base_model.model.", after = ".lora_A.weight";
  AdaptedModules out;
  for (const Linear* linear : model.linear_modules()) {
    out.any_experts = out.any_experts || fused_expert_name(linear->weight.slices.front().name);
    std::set<std::string> with;
    if (linear->lora)
      for (const Param::Slice& slice : linear->lora->a.slices) {
        const size_t size = slice.name.size() - before.size() - after.size();
        out.adapted.push_back(*with.insert(slice.name.substr(before.size(), size)).first);
      }
    for (const Param::Slice& slice : linear->weight.slices)
      if (std::string module = slice.name.substr(0, slice.name.size() - end.size()); !with.contains(module))
        out.bare.insert(std::move(module));
  }
  return out;
}

// Targets for PEFT with transformers 5, which has all experts of a layer in one parameter. PEFT gives it the adapters
// of the experts, and takes every target module called gate_proj, up_proj or down_proj for an expert's. So experts are
// named with their numbers, and other matrices of these names are targets as parameters. In the family qwen2_moe PEFT
// does not find the parameters of the experts by itself.
void set_targets_beside_experts(Json& config, Model& model) {
  const AdaptedModules modules = adapted_modules(model);
  if (!modules.any_experts) return;
  const LoraConfig& lora = model.lora()->config;
  const bool names_fused = model.config().at("model_type") == Json("qwen2_moe");
  std::set<std::string> targets, parameters, bare_fused;
  for (const std::string& module : modules.bare)
    if (const auto fused = fused_expert_name(module + ".weight")) bare_fused.insert(*fused);
  bool experts = false;
  for (const std::string& module : modules.adapted) {
    const std::string last = module.substr(module.rfind('.') + 1);
    if (const auto fused = fused_expert_name(module + ".weight")) {
      experts = true;
      targets.insert(shortest_target(module, 3, modules.bare));
      if (names_fused) parameters.insert(shortest_target(*fused, 3, bare_fused));
    } else if (last == "gate_proj" || last == "up_proj" || last == "down_proj") {
      parameters.insert(shortest_target(module, 2, modules.bare) + ".weight");
    } else {
      targets.insert(shortest_target(module, 1, modules.bare));
    }
  }
  config.set("target_modules", Json::array(std::vector<std::string>(targets.begin(), targets.end())));
  if (!parameters.empty())
    config.set("target_parameters", Json::array(std::vector<std::string>(parameters.begin(), parameters.end())));
  if (const Json patterns = gate_up_patterns(lora); experts && names_fused)
    for (const auto& [key, pattern] : patterns.as_object()) config.set(key, pattern);
  // PEFT refuses dropout for parameters. Only training has dropout: that of the recipe, or of the folder that the run
  // began with.
  if (experts || !parameters.empty()) config.set("lora_dropout", 0.0);
}

// What PEFT cannot do with the adapters of experts; empty: nothing.
std::string problem_of_peft(Model& model) {
  const Json config = model.config();
  const Json* type = config.find("model_type");
  if (!type || *type == Json("hone_decoder")) return {};
  std::set<std::string> parts;
  for (const std::string& module : adapted_modules(model).adapted)
    if (fused_expert_name(module + ".weight")) parts.insert(module.substr(module.rfind('.') + 1));
  if (parts.empty()) return {};
  if (*type == Json("gpt_oss")) return "PEFT does not know adapters of single experts of gpt_oss";
  const bool gate = parts.contains("gate_proj") || parts.contains("w1"),
             up = parts.contains("up_proj") || parts.contains("w3");
  if (gate != up)
    return "PEFT needs adapters at both gate and up of the experts (gate_proj and up_proj, or w1 and w3), or at "
           "neither";
  if (gate && *type != Json("qwen2_moe") && model.lora()->config.use_rslora)
    return "PEFT scales the adapters of gate and up of experts wrongly with use_rslora";
  return {};
}

// Says each problem once.
void warn_of_peft(Model& model) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::string problem = problem_of_peft(model);
  const std::scoped_lock lock(mutex);
  if (!problem.empty() && told.insert(problem).second)
    log::warning("adapter: ", problem, "; hone runs the adapter, and hone export merges it for other programs");
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
  set_targets_beside_experts(config, model);
  warn_of_peft(model);
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
  for (const std::string& name : file->names())
    HONE_CHECK(!name.ends_with(".experts.lora_A.weight") && !name.ends_with(".experts.base_layer.lora_A.weight"),
               folder.string(), ": ", name,
               " is an adapter of all experts of a layer (target_parameters of PEFT); "
               "adapters here are of single experts; merge it with PEFT (merge_and_unload) and load the model");
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
