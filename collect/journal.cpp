#include "collect/journal.h"

#include <functional>

#include "core/base/log.h"
#include "core/io/compressed_writer.h"

namespace hone {

CollectJournal::CollectJournal(std::filesystem::path file, const std::function<void(const CollectedRow&)>& on_row)
    : file_(std::move(file)) {
  if (std::filesystem::exists(file_)) {
    std::ifstream in(file_, std::ios::binary);
    HONE_CHECK(in.good(), file_.string(), ": cannot read");
    int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
      if (in.eof()) break;  // without a line end: a killed process was writing it
      const std::string where = concat(file_.string(), ":", ++number);
      const CollectedRow row = CollectedRow::parse(parse_json(line, file_.string(), number), where);
      lines_[row.index] = {size_, std::ssize(line)};
      size_ += std::ssize(line) + 1;
      on_row(row);
    }
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file_));
    if (bytes > size_) {
      log::info(file_.string(), ": the last line is incomplete and is left out; its row is collected again");
      std::filesystem::resize_file(file_, static_cast<uintmax_t>(size_));
    }
  }
  writer_.emplace(file_, FileWriter::Mode::append);
}

void CollectJournal::append(const CollectedRow& row) {
  const std::string line = row.to_json().dump();
  writer_->write(line + "\n");
  writer_->flush();
  lines_[row.index] = {size_, std::ssize(line)};
  size_ += std::ssize(line) + 1;
}

std::string CollectJournal::text_of(const Line& line) {
  if (!reader_.is_open()) reader_.open(file_, std::ios::binary);
  std::string out(static_cast<size_t>(line.bytes), '\0');
  reader_.clear();
  reader_.seekg(line.offset);
  reader_.read(out.data(), static_cast<std::streamsize>(out.size()));
  HONE_CHECK(reader_.good(), file_.string(), ": cannot read: another process has changed the file");
  return out;
}

std::optional<CollectedRow> CollectJournal::read(int64_t index) {
  const auto found = lines_.find(index);
  if (found == lines_.end()) return std::nullopt;
  return CollectedRow::parse(parse_json(text_of(found->second), file_.string()), file_.string());
}

void CollectJournal::sort() {
  ReplacedFile out(file_);
  std::map<int64_t, Line> sorted;
  int64_t size = 0;
  for (const auto& [index, line] : lines_) {
    out.write(text_of(line));
    out.write("\n");
    sorted[index] = {size, line.bytes};
    size += line.bytes + 1;
  }
  out.finish();
  lines_ = std::move(sorted);
  size_ = size;
  reader_.close();
  writer_.emplace(file_, FileWriter::Mode::append);
}

}  // namespace hone
