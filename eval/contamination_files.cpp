#include "eval/contamination_files.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/rows/rows.h"
#include "pretrain/token_file.h"
#include "rewards/answers/text.h"

namespace hone {
namespace {

bool is_token_file(const std::string& path) {
  const std::string_view magic(token_file_magic);
  return path != "-" && read_beginning(path, magic.size()) == magic;
}

// Adds text in pieces that may end within a word: keeps what follows the last space until the next piece.
class WordAligner {
 public:
  explicit WordAligner(Contamination& contamination) : contamination_(contamination) {}
  void add(std::string_view piece) {
    buffer_ += piece;
    size_t end = buffer_.size();
    while (end > 0 && !is_space(buffer_[end - 1])) --end;
    contamination_.add_text(std::string_view(buffer_).substr(0, end));
    buffer_.erase(0, end);
    if (buffer_.size() > kMaxWordBytes) finish();
  }
  void finish() {
    contamination_.add_text(buffer_);
    buffer_.clear();
  }

 private:
  static constexpr size_t kMaxWordBytes = size_t{1} << 20;
  Contamination& contamination_;
  std::string buffer_;
};

void add_token_file(Contamination& contamination, const std::string& path, const Tokenizer* tokenizer) {
  HONE_CHECK(tokenizer, path, ": a token file needs the tokenizer that made it; give --tokenizer");
  const TokenFile file(path);
  HONE_CHECK(file.vocab_size() <= tokenizer->vocab_size(), path, ": the file has ids up to ", file.vocab_size() - 1,
             ", the tokenizer only ", tokenizer->vocab_size(), " ids; give the tokenizer that made it");
  constexpr int64_t kTokensAtOnce = 4096;
  std::vector<int32_t> ids;
  for (int64_t document = 0; document < file.num_documents(); ++document) {
    contamination.begin_document(concat(path, "[", document, "]"));
    WordAligner aligner(contamination);
    const int64_t end = file.document_start(document + 1);
    for (int64_t begin = file.document_start(document); begin < end; begin += kTokensAtOnce) {
      ids.resize(static_cast<size_t>(std::min(kTokensAtOnce, end - begin)));
      file.read(begin, ids);
      std::string bytes;
      for (const int32_t id : ids)
        if (!tokenizer->is_special(id)) bytes += tokenizer->token_bytes(id);
      aligner.add(bytes);
    }
    aligner.finish();
  }
}

void add_rows(Contamination& contamination, const std::string& path, std::string_view text_key) {
  const std::unique_ptr<RowReader> reader = open_row_file(path);
  for (Json row; reader->next(row);) {
    contamination.begin_document(reader->where());
    const Json* text = row.find(text_key);
    each_string(text ? *text : row, [&](const std::string& string) { contamination.add_text(string); });
  }
}

void add_text_file(Contamination& contamination, const std::string& path) {
  contamination.begin_document(path);
  LineReader lines(path);
  for (std::string line; lines.next(line);) contamination.add_text(line);
}

}  // namespace

Contamination find_overlaps(const EvalTaskSpec& task, std::span<const std::string> files, std::string_view text_key,
                            const Tokenizer* tokenizer, int64_t ngram) {
  Contamination out(ngram);
  task.task->each_row([&](const Json& row, const std::string& where) { out.add_row(row, where); });
  std::vector<std::string> paths;
  for (const std::string& name : files)
    for (std::string& path : row_files(name)) paths.push_back(std::move(path));
  for (const std::string& path : paths) {
    log::info("contamination: reading ", path);
    if (is_row_file(path))
      add_rows(out, path, text_key);
    else if (is_token_file(path))
      add_token_file(out, path, tokenizer);
    else
      add_text_file(out, path);
  }
  return out;
}

}  // namespace hone
