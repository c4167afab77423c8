#pragma once
// Reads a model folder up to its weights, so that a run can check all its models before it computes anything.
#include <filesystem>
#include <memory>

#include "model/model.h"

namespace hone {

// The model of a folder (or of an adapter's folder) without weights. Reads what load_model reads (model/model.h), the
// names and shapes of the weights' files included, and throws the same Errors.
// config_changes: members of config.json to change.
std::unique_ptr<Model> read_model_folder(const std::filesystem::path& folder, const LoraConfig& lora = {},
                                         const JsonObject& config_changes = {});

// True if config.json promises layers of multi-token prediction that the model's files lack: transformers leaves them
// out of its files. Such a model is loaded without them. model: that of config.json. base: not an adapter's folder.
bool lacks_predictions(const Model& model, const std::filesystem::path& base);

// As load_model(), after changes to members of config.json.
std::unique_ptr<Model> load_changed_model(Context& context, const std::filesystem::path& folder,
                                          const LoadOptions& options, const JsonObject& config_changes);

}  // namespace hone
