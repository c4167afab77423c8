#pragma once
// Token files: a text corpus as token ids, memory-mapped. Format, little-endian: TokenFileHeader; ids of bytes_per_id
// bytes each; at documents_offset the u64 start of each document, up to the end of the file. Opening checks every
// field, reading checks every id.
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
// Writes the documents of the inputs, each followed by eos. A document is a row of a file of rows
// (core/io/rows/row_reader.h, its column text_key) or any other file; both may be .gz or .zst. Threads tokenize in
// parallel; the file is in order and is written atomically. An Error if the tokenizer has no eos.
TokenizeReport write_token_file(const std::filesystem::path& out, std::span<const std::string> inputs,
                                std::string_view text_key, const Tokenizer& tokenizer);

}  // namespace hone
