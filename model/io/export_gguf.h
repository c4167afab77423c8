#pragma once
// Writes a model as one GGUF file for llama.cpp and programs built on it.
#include <filesystem>

#include "core/io/gguf/gguf_types.h"

namespace hone {

// from: a model folder, a .gguf file, or an adapter, which is merged. type: F32, F16, BF16 or Q8_0, for matrices. As in
// llama.cpp's converter, vectors and position embeddings are F32, and Q8_0 becomes F16 where a row is no multiple of
// 32 numbers. `to` must not exist; it appears complete or not at all.
void export_gguf(const std::filesystem::path& from, const std::filesystem::path& to, const GgufType& type);

}  // namespace hone
