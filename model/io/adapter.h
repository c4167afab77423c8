#pragma once
// Adapter folders in the format of PEFT:
//
//   adapter_config.json        r, lora_alpha, target_modules, ...; base_model_name_or_path: folder of the frozen
//   weights adapter_model.safetensors  base_model.model.MODULE.lora_A.weight [r, in] and .lora_B.weight [out, r] per
//   adapted
//                              module; base_model.model.score.weight [1, D]: a value head
//
// load_model (model/model.h) loads such a folder as its base with the adapter.
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"

namespace hone {

inline constexpr const char* adapter_tensors = "adapter_model.safetensors";
inline constexpr const char* adapter_value_head = "base_model.model.score.weight";

bool is_adapter(const std::filesystem::path& folder);
// The folder with weights and config.json: the base of an adapter folder, else the folder itself. A relative base path
// is tried as it is, then relative to the adapter. Throws Error if the base is missing or is an adapter too.
std::filesystem::path base_folder(const std::filesystem::path& folder);
// The folder with the tokenizer: an adapter without one uses that of its base.
std::filesystem::path tokenizer_folder(const std::filesystem::path& folder);
LoraConfig read_lora_config(const std::filesystem::path& folder);
// True for an adapter that was trained with the long factors of longrope (use_long_rope, hone's own member of
// adapter_config.json and config.json). It belongs to its base with these factors.
bool needs_long_rope(const std::filesystem::path& folder);

// Writes the model's adapters (f32 or bf16), the absolute path of the base, and the value head (D numbers) if there is
// one. Not atomic. load_value_head (model/model.h) reads the value head.
void save_adapter(Context& context, Model& model, const std::filesystem::path& folder, DType dtype,
                  std::span<const float> value_head = {});
// Reads a folder's tensors into the model's adapters. Throws an Error that lists missing, surplus and misshapen
// tensors.
void read_adapter(Context& context, Model& model, const std::filesystem::path& folder);

// The values of an adapter folder in memory of their own, for AdapterScope.
class AdapterValues {
 public:
  AdapterValues(Context& context, Model& model, const std::filesystem::path& folder);
  std::span<const Tensor> values() const { return values_; }

 private:
  Buffer bytes_;
  std::vector<Tensor> values_;
};

// Writes a model that was made of the model `from`, with from's generation_config.json and value head. dtype: f32 or
// bf16; none: that of from's files.
void save_derived_model(Context& context, Model& model, const std::filesystem::path& from,
                        const std::filesystem::path& to, std::optional<DType> dtype = std::nullopt);

// Writes a model folder with its adapters merged (in f32 on the CPU). dtype: f32 or bf16; none: that of the base's
// files.
void export_model(const std::filesystem::path& from, const std::filesystem::path& to, std::optional<DType> dtype);
// bf16 if the weights of the model, or of an adapter's base, are bf16; else f32.
DType dtype_of_files(const std::filesystem::path& model);

}  // namespace hone
