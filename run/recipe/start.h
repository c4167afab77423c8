#pragma once
// What a run starts from: the model without weights, its adapters, the tokenizer. For checks and plans.
#include <filesystem>
#include <memory>
#include <optional>

#include "run/recipe/recipe.h"

namespace hone {

// The model that the first training stage starts from, without memory. The config alone is read.
std::unique_ptr<Model> start_model(const Recipe& recipe);
// True if model.path is an adapter.
bool starts_from_adapter(const Recipe& recipe);
// The adapters that the stages train; r = 0: none.
LoraConfig start_lora(const Recipe& recipe);
// The tokenizer that the run begins with, if any: the recipe's, else that of the model folder, with
// the chat template of [model]. checkpoint: where a
// resumed run continues; it has a copy, which is used if the original is gone. Empty: none.
std::optional<Tokenizer> start_tokenizer(const Recipe& recipe, const std::filesystem::path& checkpoint = {});

}  // namespace hone
