#pragma once
// Token files: a text corpus as ids, memory-mapped. Format: 64-byte header {magic "HONETOK1", u32 bytes per id (2 or 4), u32 vocab_size, u64
// num_tokens, u64 num_documents, u64 offset of the document table, rest zero}, ids, then u64 start of each document. Every field is checked.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tokenizer.h"

namespace hone {

class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;
  int64_t num_tokens() const;
  int64_t num_documents() const;
  int32_t vocab_size() const;
  int64_t document_start(int64_t document) const;   // document == num_documents(): num_tokens()
  // ids [begin, begin + out.size()).
  void read(int64_t begin, std::span<int32_t> out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TokenizeReport {
  int64_t documents = 0, tokens = 0, bytes = 0;
};
// Documents of the inputs, each followed by eos: a .jsonl's rows (the member text_key), a .txt whole; .gz or not. Tokenised in parallel, written in order,
// atomically.
TokenizeReport write_token_file(const std::filesystem::path& out, std::span<const std::string> inputs, std::string_view text_key, const Tokenizer& tokenizer);

}  // namespace hone
