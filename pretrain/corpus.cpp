#include "pretrain/corpus.h"

#include <unistd.h>

#include <memory>

#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/jsonl.h"

namespace hone {

void CorpusSource::fields(Fields& f) {
  f("files", files, "text files: .jsonl (one document per row) or plain text; .gz is allowed");
  f("text_key", text_key, "member of a JSON Lines row that holds the text");
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
      const std::string path = expand_path(file);
      if (path == "-") return;  // standard input: a check would take its rows
      if (!is_jsonl(path)) return void(::close(open_file(path)));
      JsonlReader rows(path);
      if (Json row; rows.next(row)) text_of_row(row, source.text_key, rows.where());
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
  struct State {
    size_t file = 0;
    std::unique_ptr<JsonlReader> rows;
  };
  return [&source, state = std::make_shared<State>()](std::string& text) {
    while (state->file < source.files.size()) {
      const std::string path = expand_path(source.files[state->file]);
      if (!is_jsonl(path)) {
        ++state->file;
        text = read_file(path, max_document_bytes);
        return true;
      }
      if (!state->rows) state->rows = std::make_unique<JsonlReader>(path);
      if (Json row; state->rows->next(row)) {
        text = text_of_row(row, source.text_key, state->rows->where());
        return true;
      }
      state->rows.reset();
      ++state->file;
    }
    return false;
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
  for (const std::string& file : source.files) inputs.push_back(expand_path(file));
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
