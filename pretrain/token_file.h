#pragma once
// Token files: a text corpus as ids, memory-mapped. Format, little-endian: TokenFileHeader, ids of bytes_per_id each,
// then at documents_offset the u64 start of each document, which ends the file. Every field is checked on opening,
// every id when read.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"

namespace hone {

inline constexpr char token_file_magic[] = "HONETOK1";

struct TokenFileHeader {
  char magic[8] = {};
  uint32_t bytes_per_id = 0;  // 2 or 4
  uint32_t vocab_size = 0;
  uint64_t num_tokens = 0;
  uint64_t num_documents = 0;
  uint64_t documents_offset = 0;
  uint64_t reserved[3] = {};
};

class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;
  int64_t num_tokens() const;
  int64_t num_documents() const;
  int32_t vocab_size() const;
  int64_t document_start(int64_t document) const;  // document == num_documents(): num_tokens()
  // ids [begin, begin + out.size()).
  void read(int64_t begin, std::span<int32_t> out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TokenizeReport {
  int64_t documents = 0, tokens = 0, bytes = 0;
};
// Documents of the inputs, each followed by eos: a .jsonl's rows (the member text_key), any other file whole; .gz or
// not. Tokenised in parallel, written in order, atomically. The tokenizer must have an eos.
TokenizeReport write_token_file(const std::filesystem::path& out, std::span<const std::string> inputs,
                                std::string_view text_key, const Tokenizer& tokenizer);

}  // namespace hone
