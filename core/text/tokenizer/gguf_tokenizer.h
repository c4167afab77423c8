#pragma once
// The tokenizer in the metadata of a GGUF file (tokenizer.ggml.*) as tokenizer.json and tokenizer_config.json, and
// back. Supported are BPE with merges (model "gpt2") and SentencePiece's BPE with scores (model "llama").
#include <filesystem>
#include <utility>
#include <vector>

#include "core/io/gguf/gguf.h"
#include "core/text/tokenizer/tokenizer_files.h"

namespace hone {

// Whether the file has a vocabulary.
bool has_gguf_tokenizer(const GgufReader& file);
// Errors name the file and the key.
TokenizerFiles read_gguf_tokenizer(const GgufReader& file);
// bos_token_id, eos_token_id (a list if a turn ends with another token), pad_token_id and the sampling settings of the
// file, as generation_config.json has them.
Json gguf_generation_config(const GgufReader& file);

}  // namespace hone
