// JSON files: an array of objects, or objects one after another. The file is read value by value: a scan finds the end
// of a value, and parse_json() reads it.
#include "core/io/byte_source.h"
#include "core/io/rows/row_reader.h"

namespace hone {
namespace {

constexpr size_t kMaxRow = size_t{256} << 20;

bool is_json_space(int byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

class JsonRows : public RowReader {
 public:
  explicit JsonRows(const std::filesystem::path& path) : text_(path) {
    if (next_byte() == '[') {
      text_.get();
      in_array_ = true;
    }
  }

  bool next(Json& row) override {
    if (in_array_ ? !to_next_element() : next_byte() == TextCursor::end) return false;
    ++row_;
    scan_value();
    row = parse_json(value_, where());
    HONE_CHECK(row.is_object(), where(), ": a row must be an object, this is ", row.kind_name());
    return true;
  }

  std::string where() const override { return concat(text_.name(), " row ", row_); }

 private:
  // The next byte that is not white space, without going past it.
  int next_byte() {
    while (is_json_space(text_.peek())) text_.get();
    return text_.peek();
  }

  // Goes past the comma before an element. False after the array, which must end the file.
  bool to_next_element() {
    if (ended_) return false;
    int byte = next_byte();
    if (byte == ',' && row_ > 0) {
      text_.get();
      byte = next_byte();
      HONE_CHECK(byte != ']' && byte != ',', at_line(), ": a value is missing after the comma");
    } else if (byte == ']') {
      text_.get();
      ended_ = true;
      HONE_CHECK(next_byte() == TextCursor::end, at_line(), ": text after the end of the array");
      return false;
    } else {
      HONE_CHECK(row_ == 0 || byte == TextCursor::end, at_line(), ": expected a comma or ] after row ", row_);
    }
    HONE_CHECK(byte != TextCursor::end, at_line(), ": the file ends inside the array, after row ", row_);
    return true;
  }

  // Reads the text of the value that begins here into value_.
  void scan_value() {
    const int64_t first_line = text_.line();
    value_.clear();
    bool in_string = false, escaped = false;
    for (int64_t depth = 0;;) {
      const int byte = text_.peek();
      HONE_CHECK(byte != TextCursor::end || (depth == 0 && !in_string), where(),
                 ": the file ends inside the row, which ", "begins on line ", first_line);
      const bool ends_scalar = depth == 0 && !in_string && !value_.empty() &&
                               (byte == TextCursor::end || byte == ',' || byte == ']' || is_json_space(byte));
      if (ends_scalar) return;
      value_ += static_cast<char>(text_.get());
      HONE_CHECK(value_.size() <= kMaxRow, where(), ": a row of more than ", kMaxRow, " bytes");
      if (in_string) {
        in_string = escaped || byte != '"';
        escaped = !escaped && byte == '\\';
      } else if (byte == '"') {
        in_string = true;
      } else if (byte == '{' || byte == '[') {
        ++depth;
      } else if (byte == '}' || byte == ']') {
        if (--depth <= 0) return;
      }
    }
  }

  std::string at_line() const { return concat(text_.name(), ":", text_.line()); }

  TextCursor text_;
  bool in_array_ = false, ended_ = false;
  int64_t row_ = 0;
  std::string value_;
};

}  // namespace

std::unique_ptr<RowReader> open_json_rows(const std::filesystem::path& path) {
  return std::make_unique<JsonRows>(path);
}

}  // namespace hone
