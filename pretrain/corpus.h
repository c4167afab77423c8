#pragma once
// Documents to learn a language from: text files, rows of JSON Lines, or a generator's problems.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/config/problems.h"
#include "core/text/tokenizer/bpe_train.h"
#include "core/text/tokenizer/tokenizer.h"
#include "data/generator.h"
#include "pretrain/token_file.h"

namespace hone {

struct CorpusSource {
  std::vector<std::string> files;  // rows (column text_key), plain texts, dataset folders
  std::string text_key = "text";
  GeneratorSpec generator;  // documents are prompt + completion of its train split
  int64_t documents = 0;    // of the generator; 0 = all
  void fields(Fields& f);
};
// Adds a problem for each file that cannot be read or whose first row has no text, or if the source has neither files
// nor a generator.
void check_corpus(const CorpusSource& source, const Problems& problems);
// Returns a reader that stores the next document and returns true, or false at the end. The source outlives it.
std::function<bool(std::string&)> corpus_reader(const CorpusSource& source);

// Trains a byte-level BPE tokenizer on the corpus and writes it as a tokenizer folder. Its eos is the first special
// token.
void train_tokenizer(const CorpusSource& source, const BpeTrainOptions& options, const std::filesystem::path& folder);

// The path of the token file in `folder`.
std::filesystem::path token_file_path(const std::filesystem::path& folder);
// Writes the corpus as a token file in `folder` unless it exists, and returns its path. A plain text file is one
// document.
std::filesystem::path tokenize_corpus(const CorpusSource& source, const Tokenizer& tokenizer,
                                      const std::filesystem::path& folder);

}  // namespace hone
