#pragma once
// Makes a Hugging Face folder of a GGUF file.
#include <filesystem>
#include <functional>

#include "core/device/dtype.h"

namespace hone {

// Writes config.json, generation_config.json, model.safetensors (dtype: f32 or bf16), the tokenizer's files and the
// chat template. One tensor at a time is in memory. `to` must not exist, or be an empty folder; it appears complete or
// not at all.
void import_gguf(const std::filesystem::path& from, const std::filesystem::path& to, DType dtype);

// Throws Error unless the path is free for a new folder: it does not exist, or is an empty folder.
void check_new_folder(const std::filesystem::path& to);

// Calls write(temporary folder) and renames that folder to `to`, which must not exist, or be an empty folder. Removes
// it if write throws.
void write_folder_atomic(const std::filesystem::path& to,
                         const std::function<void(const std::filesystem::path& folder)>& write);

}  // namespace hone
