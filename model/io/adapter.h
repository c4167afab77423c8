#pragma once
// Adapters as folders in PEFT's format, which real PEFT opens and writes:
//
//   adapter_config.json        r, lora_alpha, target_modules, ..., base_model_name_or_path: the folder of the frozen
//   weights adapter_model.safetensors  base_model.model.MODULE.lora_A.weight [r, in] and .lora_B.weight [out, r] for
//   each adapted module;
//                              base_model.model.score.weight [1, D]: a value head
//
// load_model (model/model.h) opens such a folder as its base with the adapter on it.
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"

namespace hone {

inline constexpr const char* adapter_tensors = "adapter_model.safetensors";
inline constexpr const char* adapter_value_head = "base_model.model.score.weight";

bool is_adapter(const std::filesystem::path& folder);
// Where a model folder's weights and config.json are: an adapter's base (its path as it stands or, if that is no
// folder, from the adapter's own), any other folder itself. A base that is not there, or is an adapter too, is an
// Error.
std::filesystem::path base_folder(const std::filesystem::path& folder);
// Where its tokenizer is: an adapter without one has its base's.
std::filesystem::path tokenizer_folder(const std::filesystem::path& folder);
LoraConfig read_lora_config(const std::filesystem::path& folder);

// Writes the model's adapters into folder, f32 or bf16, with the base's absolute path, and a value head (D numbers),
// where there is one. Not atomic by itself. load_value_head (model/model.h) reads the head.
void save_adapter(Context& context, Model& model, const std::filesystem::path& folder, DType dtype,
                  std::span<const float> value_head = {});
// Reads a folder's tensors into the adapters of a model that has the same ones. Missing, surplus and misshapen tensors
// are Errors that list them.
void read_adapter(Context& context, Model& model, const std::filesystem::path& folder);

// The values of an adapter besides those that a model has: what AdapterScope takes.
class AdapterValues {
 public:
  AdapterValues(Context& context, Model& model, const std::filesystem::path& folder);
  std::span<const Tensor> values() const { return values_; }

 private:
  Buffer bytes_;
  std::vector<Tensor> values_;
};

// Writes a model folder as one without adapters, merged in f32 on the CPU; dtype as save_model takes it, or as the
// base's files have it.
void export_model(const std::filesystem::path& from, const std::filesystem::path& to, std::optional<DType> dtype);

}  // namespace hone
