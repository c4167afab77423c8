#include "pretrain/corpus.h"

#include <unistd.h>

#include <memory>

#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "core/io/rows/rows.h"

namespace hone {

void CorpusSource::fields(Fields& f) {
  f("files", files,
    "texts: files of rows (.jsonl, .json, .csv, .tsv, .parquet; one document per row), plain text, or Hugging Face "
    "dataset "
    "folders; also .gz or .zst");
  f("text_key", text_key, "column of the text in files of rows");
  f("generator", generator, "generator of the documents (prompt and completion) instead of files");
  f("documents", documents, "number of documents of the generator; 0 = its whole train split");
  f.require("files", files.empty() || generator.kind.empty(), "a corpus is files or a generator, not both");
  f.require("documents", documents >= 0, "documents must be 0 or more");
}

static void require_source(const CorpusSource& source) {
  HONE_CHECK(!source.files.empty() || source.generator.generator, "corpus: give files or a generator");
}

static std::string text_of_row(const Json& row, const std::string& key, const std::string& where) {
  return row.at(key, where).as_string(where);
}

void check_corpus(const CorpusSource& source, const Problems& problems) {
  problems.attempt("", [&] { require_source(source); });
  for (const std::string& file : source.files)
    problems.attempt("files", [&] {
      for (const std::string& path : row_files(file)) {
        if (path == "-") continue;  // standard input: a check would take its rows
        if (!is_row_file(path)) {
          ::close(open_file(path));
          continue;
        }
        const std::unique_ptr<RowReader> rows = open_row_file(path);
        if (Json row; rows->next(row)) text_of_row(row, source.text_key, rows->where());
      }
    });
}

static int64_t generated_documents(const CorpusSource& source) {
  const int64_t all = source.generator.generator->size("train");
  return source.documents > 0 ? std::min(all, source.documents) : all;
}

static std::string generated_document(const CorpusSource& source, int64_t i) {
  const Example example = source.generator.generator->example("train", i);
  return example.prompt + example.completion;
}

std::function<bool(std::string&)> corpus_reader(const CorpusSource& source) {
  require_source(source);
  if (source.generator.generator)
    return [&source, i = int64_t{0}, end = generated_documents(source)](std::string& text) mutable {
      if (i >= end) return false;
      text = generated_document(source, i++);
      return true;
    };
  std::vector<std::string> files;
  for (const std::string& name : source.files)
    for (const std::string& path : row_files(name)) files.push_back(path);
  struct State {
    std::vector<std::string> files;
    size_t next_file = 0;
    std::unique_ptr<RowReader> rows;  // of the file before next_file; null for a plain text
  };
  return [&source, state = std::make_shared<State>(State{std::move(files), 0, nullptr})](std::string& text) {
    for (;;) {
      if (Json row; state->rows && state->rows->next(row)) {
        text = text_of_row(row, source.text_key, state->rows->where());
        return true;
      }
      state->rows.reset();
      if (state->next_file == state->files.size()) return false;
      const std::string& path = state->files[state->next_file++];
      if (is_row_file(path)) {
        state->rows = open_row_file(path);
      } else {
        text = read_file(path, max_document_bytes);
        return true;
      }
    }
  };
}

void train_tokenizer(const CorpusSource& source, const BpeTrainOptions& options, const std::filesystem::path& folder) {
  const BpeTrainResult result = train_bpe(corpus_reader(source), options);
  const Json config =
      JsonObject{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"eos_token", options.special_tokens.at(0)}};
  make_folder(folder);
  write_file_atomic(folder / "tokenizer.json", bpe_tokenizer_json(result, options).dump() + "\n");
  write_file_atomic(folder / "tokenizer_config.json", config.dump(2) + "\n");
  log::info("tokenizer: ", result.vocab.size(), " tokens, ", result.merges.size(), " merges");
}

std::filesystem::path token_file_path(const std::filesystem::path& folder) { return folder / "tokens.bin"; }

std::filesystem::path tokenize_corpus(const CorpusSource& source, const Tokenizer& tokenizer,
                                      const std::filesystem::path& folder) {
  std::filesystem::path out = token_file_path(folder);
  if (std::filesystem::exists(out)) return out;
  make_folder(folder);
  std::vector<std::string> inputs;
  for (const std::string& name : source.files)
    for (const std::string& path : row_files(name)) inputs.push_back(path);
  const std::filesystem::path documents = folder / "documents.jsonl";
  if (source.generator.generator) {
    JsonlWriter file(documents);
    for (int64_t i = 0; i < generated_documents(source); ++i)
      file.write(JsonObject{{source.text_key, generated_document(source, i)}});
    file.flush();
    inputs.push_back(documents.string());
  }
  const TokenizeReport report = write_token_file(out, inputs, source.text_key, tokenizer);
  log::info("corpus: ", report.documents, " documents, ", report.bytes, " bytes, ", report.tokens, " tokens");
  return out;
}

}  // namespace hone
