#pragma once
// Prompt lookup decoding (Saxena 2023): drafts by n-gram matches in the text itself.
#include <cstdint>
#include <span>

namespace hone {

// Finds the longest n-gram, min_match <= n <= max_match, that ends the text and also occurs earlier in it. Returns all
// tokens after that earlier match; of several matches of equal length, after the first (as vLLM does). Empty if there
// is no match.
std::span<const int32_t> prompt_lookup(std::span<const int32_t> tokens, int64_t min_match, int64_t max_match);

}  // namespace hone
