#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/log.h"
#include "core/base/parallel_for.h"
#include "core/io/file.h"
#include "core/io/rows/row_reader.h"
#include "pretrain/token_file.h"

namespace hone {
namespace {

// The token file while it is written: path.tmp until finish() renames it. The destructor removes an unfinished file.
class Writer {
 public:
  Writer(const std::filesystem::path& path, int32_t vocab_size) : path_(path), temporary_(path.string() + ".tmp") {
    check_replaceable(path);
    std::memcpy(header_.magic, token_file_magic, sizeof header_.magic);
    header_.vocab_size = static_cast<uint32_t>(vocab_size);
    header_.bytes_per_id = vocab_size <= 1 << 16 ? 2 : 4;
    file_ = ::fdopen(create_locked_file(temporary_), "wb");
    HONE_CHECK(file_, temporary_, ": cannot be made: ", std::strerror(errno));
    write(&header_, sizeof header_);
  }
  ~Writer() {
    if (!file_) return;
    std::fclose(file_);
    std::remove(temporary_.c_str());
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void document(std::span<const int32_t> ids) {
    starts_.push_back(header_.num_tokens);
    packed_.clear();
    for (const int32_t id : ids) {
      const auto* bytes = reinterpret_cast<const char*>(&id);  // the low bytes of a little-endian id
      packed_.insert(packed_.end(), bytes, bytes + header_.bytes_per_id);
    }
    write(packed_.data(), packed_.size());
    header_.num_tokens += ids.size();
  }

  void finish() {
    header_.num_documents = starts_.size();
    header_.documents_offset = sizeof header_ + header_.num_tokens * header_.bytes_per_id;
    write(starts_.data(), starts_.size() * sizeof starts_[0]);
    HONE_CHECK(std::fseek(file_, 0, SEEK_SET) == 0, temporary_, ": cannot be written: ", std::strerror(errno));
    write(&header_, sizeof header_);
    HONE_CHECK(std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0, temporary_,
               ": cannot be written: ", std::strerror(errno));
    HONE_CHECK(std::rename(temporary_.c_str(), path_.c_str()) == 0, path_.string(),
               ": cannot be written: ", std::strerror(errno));
    std::fclose(file_);
    file_ = nullptr;
  }

 private:
  void write(const void* bytes, size_t size) {
    HONE_CHECK(std::fwrite(bytes, 1, size, file_) == size, temporary_, ": cannot be written: ", std::strerror(errno));
  }

  std::filesystem::path path_;
  std::string temporary_;
  TokenFileHeader header_;
  std::vector<uint64_t> starts_;
  std::vector<char> packed_;
  std::FILE* file_ = nullptr;
};

void read_documents(const std::string& input, std::string_view text_key,
                    const std::function<void(std::string)>& document) {
  if (!is_row_file(input)) {
    document(read_file(input, max_document_bytes));
    return;
  }
  const std::unique_ptr<RowReader> rows = open_row_file(input);
  for (Json row; rows->next(row);) {
    const std::string where = rows->where();
    document(row.at(text_key, where).as_string(concat(where, ": ", text_key)));
  }
}

}  // namespace

TokenizeReport write_token_file(const std::filesystem::path& out, std::span<const std::string> inputs,
                                std::string_view text_key, const Tokenizer& tokenizer) {
  constexpr size_t batch_bytes = size_t{4} << 20;
  HONE_CHECK(tokenizer.eos(), "the tokenizer has no end-of-sequence token to put between documents");
  Writer writer(out, tokenizer.vocab_size());
  TokenizeReport report;
  log::Progress progress("tokenize", 0, "bytes");
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> ids;
  size_t waiting = 0;
  const auto tokenize_batch = [&] {
    ids.assign(texts.size(), {});
    parallel_for(static_cast<int64_t>(texts.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        ids[i] = tokenizer.encode_document(texts[i]);
        ids[i].push_back(*tokenizer.eos());
      }
    });
    for (const std::vector<int32_t>& document : ids) {
      writer.document(document);
      report.tokens += static_cast<int64_t>(document.size());
    }
    report.documents += static_cast<int64_t>(texts.size());
    report.bytes += static_cast<int64_t>(waiting);
    progress.update(report.bytes);
    texts.clear(), waiting = 0;
  };
  for (const std::string& input : inputs)
    read_documents(input, text_key, [&](std::string text) {
      waiting += text.size();
      texts.push_back(std::move(text));
      if (waiting >= batch_bytes) tokenize_batch();
    });
  tokenize_batch();
  HONE_CHECK(report.documents > 0, "tokenize: the inputs hold no documents");
  writer.finish();
  return report;
}

}  // namespace hone
