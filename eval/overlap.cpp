#include "eval/overlap.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/io/jsonl.h"
#include "pretrain/token_file.h"
#include "rewards/answers/text.h"

namespace hone {
namespace {

bool is_token_file(const std::string& path) {
  const std::string_view magic(token_file_magic);
  return path != "-" && read_beginning(path, magic.size()) == magic;
}

// Text whose pieces may end within a word: what follows the last space waits for the next piece.
class Pieces {
 public:
  explicit Pieces(Contamination& to) : to_(to) {}
  void add(std::string_view piece) {
    waiting_ += piece;
    size_t end = waiting_.size();
    while (end > 0 && !is_space(waiting_[end - 1])) --end;
    to_.add_text(std::string_view(waiting_).substr(0, end));
    waiting_.erase(0, end);
    if (waiting_.size() > longest_word) finish();
  }
  void finish() {
    to_.add_text(waiting_);
    waiting_.clear();
  }

 private:
  static constexpr size_t longest_word = size_t{1} << 20;
  Contamination& to_;
  std::string waiting_;
};

void add_token_file(Contamination& to, const std::string& path, const Tokenizer* tokenizer) {
  HONE_CHECK(tokenizer, path, ": a token file is read with the tokenizer that made it; name that");
  const TokenFile file(path);
  HONE_CHECK(file.vocab_size() <= tokenizer->vocab_size(), path, ": the file has ids up to ", file.vocab_size() - 1,
             ", the tokenizer knows ", tokenizer->vocab_size());
  constexpr int64_t at_once = 4096;
  std::vector<int32_t> ids;
  for (int64_t document = 0; document < file.num_documents(); ++document) {
    to.begin_document(concat(path, "[", document, "]"));
    Pieces pieces(to);
    const int64_t end = file.document_start(document + 1);
    for (int64_t begin = file.document_start(document); begin < end; begin += at_once) {
      ids.resize(static_cast<size_t>(std::min(at_once, end - begin)));
      file.read(begin, ids);
      std::string bytes;
      for (const int32_t id : ids)
        if (!tokenizer->is_special(id)) bytes += tokenizer->token_bytes(id);
      pieces.add(bytes);
    }
    pieces.finish();
  }
}

void add_jsonl(Contamination& to, const std::string& path, std::string_view text_key) {
  JsonlReader reader(path);
  for (Json row; reader.next(row);) {
    to.begin_document(reader.where());
    const Json* text = row.find(text_key);
    each_string(text ? *text : row, [&](const std::string& string) { to.add_text(string); });
  }
}

void add_text_file(Contamination& to, const std::string& path) {
  to.begin_document(path);
  LineReader lines(path);
  for (std::string line; lines.next(line);) to.add_text(line);
}

}  // namespace

Contamination find_overlaps(const EvalTaskSpec& task, std::span<const std::string> files, std::string_view text_key,
                            const Tokenizer* tokenizer, int64_t ngram) {
  Contamination out(ngram);
  task.task->each_row([&](const Json& row, const std::string& where) { out.add_row(row, where); });
  for (const std::string& path : files) {
    log::info("overlap: reading ", path);
    if (is_jsonl(path))
      add_jsonl(out, path, text_key);
    else if (is_token_file(path))
      add_token_file(out, path, tokenizer);
    else
      add_text_file(out, path);
  }
  return out;
}

}  // namespace hone
