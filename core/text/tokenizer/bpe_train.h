#pragma once
// Byte-level BPE training (Sennrich et al. 2016, on bytes as in GPT-2). Threads count pre-tokens. Then the most
// frequent pair is merged until vocab_size is reached. Among equally frequent pairs the lexicographically greater pair
// of byte strings wins. The result depends only on the text, not on the number of threads.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace hone {

struct BpeTrainOptions {
  int64_t vocab_size = 0;                     // special tokens and the 256 bytes included
  std::vector<std::string> special_tokens{};  // they take the first ids, split the text and are never merged
  std::string pattern{};                      // pre-tokenization regex; empty = GPT-2's
  int64_t min_frequency = 1;
};

struct BpeTrainResult {
  std::vector<std::string> vocab;                           // bytes of each id: special tokens, 256 bytes, merges
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
};

// next(text) writes the next document to `text` and returns true, or returns false at the end.
BpeTrainResult train_bpe(const std::function<bool(std::string&)>& next, const BpeTrainOptions& options);

// The result as a Hugging Face tokenizer.json.
Json bpe_tokenizer_json(const BpeTrainResult& result, const BpeTrainOptions& options);

}  // namespace hone
