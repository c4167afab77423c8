#pragma once
// Reads one column of a row group, page by page.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "core/io/parquet/bits.h"
#include "core/io/parquet/values.h"

namespace hone::parquet {

// The bytes of a file, in any order.
class FileBytes {
 public:
  virtual ~FileBytes() = default;
  virtual uint64_t size() const = 0;
  // offset + size must be at most size().
  virtual std::string read(uint64_t offset, uint64_t size) const = 0;
};

// An entry is a value or a null with its levels; repetition() and definition() are those of the next one. Errors name
// the column.
class ColumnReader {
 public:
  // data_end: offset of the footer. File and leaf must outlive the reader.
  ColumnReader(const FileBytes& file, uint64_t data_end, const Leaf& leaf, const ColumnChunk& chunk);
  const Leaf& leaf() const { return leaf_; }
  bool ended() const { return ended_; }
  int repetition() const;
  int definition() const;
  Json take_value();
  // Goes past an entry without a value.
  void skip_null();

 private:
  void advance();
  void read_entry();
  void next_page();
  void begin_data_page(const PageHeader& header, const std::string& body);
  void begin_dictionary(const PageHeader& header, const std::string& body);
  PageHeader read_header();
  RunDecoder take_levels(std::string_view& bytes, Encoding encoding, int max_level) const;
  void check_not_ended() const;
  template <class Body>
  auto named(Body body) const;

  const FileBytes& file_;
  const Leaf& leaf_;
  Codec codec_;
  uint64_t data_end_, offset_;
  int64_t entries_left_;  // of the column, without those of the current page
  int64_t page_left_ = 0;
  bool ended_ = false, has_dictionary_ = false;
  int repetition_ = 0, definition_ = 0;
  std::string page_;
  RunDecoder repetitions_, definitions_;
  bool uses_dictionary_ = false;
  RunDecoder indices_;
  std::unique_ptr<ValueDecoder> values_;
  JsonArray dictionary_;
};

}  // namespace hone::parquet
