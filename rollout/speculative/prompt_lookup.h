#pragma once
// Prompt lookup (Saxena 2023): a text that quotes itself goes on as it did before.
#include <cstdint>
#include <span>

namespace hone {

// What followed the longest run of tokens, of at least `shortest` and at most `longest`, that the text ends with and
// that it held before; of several as long, the first (as vLLM does). Up to the text's end; empty where there is none.
std::span<const int32_t> prompt_lookup(std::span<const int32_t> tokens, int64_t shortest, int64_t longest);

}  // namespace hone
