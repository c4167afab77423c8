// CSV and TSV after RFC 4180: quoted fields with delimiters, line ends and doubled quotes; LF, CRLF or CR; a byte order
// mark; a header row. As in pandas, blank lines are skipped and a column without a name is "Unnamed: INDEX".
#include <algorithm>
#include <array>
#include <set>

#include "core/io/byte_source.h"
#include "core/io/rows/row_reader.h"
#include "core/io/utf8.h"

namespace hone {
namespace {

constexpr size_t kMaxRow = size_t{256} << 20, kMaxColumns = 65536;

// The most frequent delimiter of the header line, outside of quotes; a comma if there is none.
char find_delimiter(std::string_view header) {
  constexpr std::string_view known = ",;\t|";
  std::array<int64_t, known.size()> counts{};
  bool quoted = false;
  for (const char c : header) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '\n' || c == '\r')) break;
    const size_t index = quoted ? known.npos : known.find(c);
    if (index != known.npos) ++counts[index];
  }
  return known[static_cast<size_t>(std::ranges::max_element(counts) - counts.begin())];
}

class CsvRows final : public RowReader {
 public:
  CsvRows(const std::filesystem::path& path, char delimiter) : text_(path) {
    delimiter_ = delimiter == '\0' ? find_delimiter(text_.ahead()) : delimiter;
    HONE_CHECK(read_record(), text_.name(), ": the file is empty; the first row must name the columns");
    std::set<std::string> seen;
    for (size_t i = 0; i < fields_.size(); ++i) {
      columns_.push_back(fields_[i].empty() ? concat("Unnamed: ", i) : fields_[i]);
      HONE_CHECK(seen.insert(columns_.back()).second, where(), ": the column '", columns_.back(), "' is named twice");
    }
  }

  bool next(Json& row) override {
    if (!read_record()) return false;
    HONE_CHECK(fields_.size() == columns_.size(), where(), ": the row has ", fields_.size(), " fields, the header ",
               columns_.size());
    JsonObject members;
    members.reserve(columns_.size());
    for (size_t i = 0; i < columns_.size(); ++i) {
      HONE_CHECK(is_utf8(fields_[i]), where(), ": column '", columns_[i], "' is not UTF-8; save the file as UTF-8");
      members.emplace_back(columns_[i], std::move(fields_[i]));
    }
    row = std::move(members);
    return true;
  }

  std::string where() const override { return concat(text_.name(), ":", line_); }

 private:
  bool is_line_end(int byte) const { return byte == '\n' || byte == '\r'; }
  void skip_line_end() {
    if (text_.get() == '\r' && text_.peek() == '\n') text_.get();
  }

  // Reads the fields of the next record that is not a blank line.
  bool read_record() {
    while (is_line_end(text_.peek())) skip_line_end();
    if (text_.peek() == TextCursor::end) return false;
    line_ = text_.line();
    size_ = 0;
    fields_.clear();
    for (;;) {
      read_field();
      HONE_CHECK(fields_.size() <= kMaxColumns, where(), ": a row of more than ", kMaxColumns, " fields");
      if (text_.peek() == delimiter_) {
        text_.get();
        continue;
      }
      if (text_.peek() != TextCursor::end) skip_line_end();
      return true;
    }
  }

  void read_field() {
    std::string field;
    if (text_.peek() == '"') {
      read_quoted(field);
      const int byte = text_.peek();
      HONE_CHECK(byte == TextCursor::end || byte == delimiter_ || is_line_end(byte), text_.name(), ":", text_.line(),
                 ": text after the closing quote of field ", fields_.size() + 1, "; write \"\" for a quote");
    } else {
      for (int byte = text_.peek(); byte != TextCursor::end && byte != delimiter_ && !is_line_end(byte);
           byte = text_.peek())
        add(field, text_.get());
    }
    fields_.push_back(std::move(field));
  }

  void read_quoted(std::string& field) {
    text_.get();
    for (;;) {
      const int byte = text_.get();
      HONE_CHECK(byte != TextCursor::end, where(), ": field ", fields_.size() + 1,
                 " begins with a quote that is never closed");
      if (byte != '"') {
        add(field, byte);
        continue;
      }
      if (text_.peek() != '"') return;
      add(field, text_.get());
    }
  }

  void add(std::string& field, int byte) {
    field += static_cast<char>(byte);
    HONE_CHECK(++size_ <= kMaxRow, where(), ": a row of more than ", kMaxRow,
               " bytes; a quote that is never closed can be the cause");
  }

  TextCursor text_;
  char delimiter_ = ',';
  std::vector<std::string> columns_, fields_;
  int64_t line_ = 1;
  size_t size_ = 0;  // bytes of the record so far
};

}  // namespace

std::unique_ptr<RowReader> open_csv_rows(const std::filesystem::path& path, char delimiter) {
  return std::make_unique<CsvRows>(path, delimiter);
}

}  // namespace hone
