#pragma once
// Writes a tokenizer as the metadata of a GGUF file: the inverse of core/text/tokenizer/gguf_tokenizer.h.
#include <filesystem>

#include "core/io/gguf/gguf_writer.h"

namespace hone {

// path: what Tokenizer::load takes. vocab_size: rows of the model's embedding; ids without a token become "[PAD7]" of
// type unused, as llama.cpp's converter writes them. Byte-level BPE becomes the model "gpt2", SentencePiece's BPE the
// model "llama". Throws Error if llama.cpp has no such tokenizer or pre-tokenizer.
void write_gguf_tokenizer(const std::filesystem::path& path, int64_t vocab_size, GgufWriter& out);

}  // namespace hone
