#pragma once
// The files of a model: a Hugging Face folder, or a .gguf file, which counts as the folder that `hone import` would
// make of it. Every path of a model that a user gives comes through here.
#include <filesystem>

#include "core/io/json.h"

namespace hone {

class Tokenizer;

// Throws Error unless the path is a model folder (with config.json), the folder of an adapter, or a .gguf file. The
// Error says what the path is instead, and what would be right.
void check_model_path(const std::filesystem::path& path);

// Throws Error if a model folder has no safetensors. The Error says what weights it has instead.
void check_weights(const std::filesystem::path& folder);

// config.json. model: a folder without an adapter, or a .gguf file.
Json read_model_config(const std::filesystem::path& model);
std::string config_source(const std::filesystem::path& model);  // the name of that file in messages

// generation_config.json of a model, or of an adapter's base; {} if there is none.
Json read_generation_config(const std::filesystem::path& model);
// The same with the ids that end a generation for this tokenizer. A list with the same ids stays as it is, in its
// order. An empty object gets the tokenizer's ids of begin and padding, too.
Json with_stop_ids(Json generation_config, const Tokenizer& tokenizer);
// Sets bos_token_id, eos_token_id and pad_token_id of a config.json that lacks them: as in generation_config.json, else
// null. For an absent id transformers takes the one of a published model, which the vocabulary may not have.
void set_token_ids(Json& config, const Json& generation_config);

}  // namespace hone
