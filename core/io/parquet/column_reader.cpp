#include "core/io/parquet/column_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/check.h"
#include "core/io/compression.h"
#include "core/io/parquet/codec.h"
#include "core/io/parquet/thrift.h"

namespace hone::parquet {
namespace {

constexpr uint64_t kFirstHeaderBytes = 512, kMaxHeaderBytes = uint64_t{16} << 20;
constexpr int32_t kMaxPage = int32_t{1} << 30;

int width_of(int max_level) { return std::bit_width(static_cast<unsigned>(max_level)); }

std::string_view take(std::string_view& bytes, uint64_t size) {
  HONE_CHECK(size <= bytes.size(), "a page ends within its levels");
  const std::string_view out = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return out;
}

bool is_dictionary(Encoding encoding) {
  return encoding == Encoding::plain_dictionary || encoding == Encoding::rle_dictionary;
}

}  // namespace

// Runs body(); adds the column to its errors.
template <class Body>
auto ColumnReader::named(Body body) const {
  try {
    return body();
  } catch (const Error& error) {
    fail("column ", leaf_.path, ": ", error.what());
  }
}

ColumnReader::ColumnReader(const FileBytes& file, uint64_t data_end, const Leaf& leaf, const ColumnChunk& chunk)
    : file_(file), leaf_(leaf), codec_(chunk.codec), data_end_(data_end), entries_left_(chunk.num_values) {
  named([&] {
    HONE_CHECK(!chunk.elsewhere, "its values are in another file");
    HONE_CHECK(!chunk.encrypted, "it is encrypted; hone has no keys for it");
    HONE_CHECK(chunk.type == leaf.type, "its type in the row group is not that of the schema");
  });
  const bool dictionary_first =
      chunk.dictionary_page_offset > 0 && chunk.dictionary_page_offset < chunk.data_page_offset;
  offset_ = static_cast<uint64_t>(dictionary_first ? chunk.dictionary_page_offset : chunk.data_page_offset);
  advance();
}

void ColumnReader::check_not_ended() const {
  HONE_CHECK(!ended_, "column ", leaf_.path, " has fewer values than the file has rows");
}
int ColumnReader::repetition() const {
  check_not_ended();
  return repetition_;
}
int ColumnReader::definition() const {
  check_not_ended();
  return definition_;
}

void ColumnReader::advance() {
  named([&] { read_entry(); });
}

void ColumnReader::read_entry() {
  while (page_left_ == 0) {
    if (entries_left_ == 0) {
      ended_ = true;
      return;
    }
    next_page();
  }
  --page_left_;
  repetition_ = leaf_.max_repetition > 0 ? static_cast<int>(repetitions_.next()) : 0;
  definition_ = leaf_.max_definition > 0 ? static_cast<int>(definitions_.next()) : 0;
  HONE_CHECK(repetition_ <= leaf_.max_repetition && definition_ <= leaf_.max_definition, "a page has the levels ",
             repetition_, " and ", definition_, ", above the schema's");
}

Json ColumnReader::take_value() {
  Json out = named([&]() -> Json {
    HONE_CHECK(!ended_ && definition_ == leaf_.max_definition, "a value is missing where the schema needs one");
    if (uses_dictionary_) {
      const uint32_t index = indices_.next();
      HONE_CHECK(index < dictionary_.size(), "a page has value ", index, " of a dictionary of ", dictionary_.size());
      return dictionary_[index];
    }
    StoredValue value;
    values_->next(value);
    return to_json(leaf_, value);
  });
  advance();
  return out;
}

void ColumnReader::skip_null() {
  HONE_CHECK(definition() < leaf_.max_definition, "column ", leaf_.path, " has a value where another has a null");
  advance();
}

// The size of a header is not known before it is read.
PageHeader ColumnReader::read_header() {
  HONE_CHECK(offset_ >= 4 && offset_ < data_end_, "its page is at byte ", offset_, ", outside of the data");
  for (uint64_t size = kFirstHeaderBytes;; size *= 8) {
    const uint64_t all = std::min(data_end_ - offset_, kMaxHeaderBytes);
    try {
      return parse_page_header(file_.read(offset_, std::min(size, all)));
    } catch (const ThriftTruncated&) {  // tries again with more bytes
      if (size >= all) throw;
    }
  }
}

void ColumnReader::next_page() {
  const PageHeader header = read_header();
  offset_ += header.header_bytes;
  const auto size = static_cast<uint64_t>(header.compressed_size);
  HONE_CHECK(size <= data_end_ - offset_, "a page has ", size, " bytes, the file ", data_end_ - offset_, " more");
  HONE_CHECK(header.uncompressed_size <= kMaxPage, "a page has ", header.uncompressed_size, " bytes; at most ",
             kMaxPage, " are possible");
  if (header.type == PageType::index) {
    offset_ += size;
    return;
  }
  HONE_CHECK(header.has_details, "the header of a page says nothing about its values");
  const std::string body = file_.read(offset_, size);
  offset_ += size;
  HONE_CHECK(!header.checksum || *header.checksum == gzip_checksum(body),
             "a page is damaged: its checksum differs from its header's");
  if (header.type == PageType::dictionary)
    begin_dictionary(header, body);
  else
    begin_data_page(header, body);
}

void ColumnReader::begin_dictionary(const PageHeader& header, const std::string& body) {
  HONE_CHECK(!has_dictionary_, "it has two dictionaries");
  HONE_CHECK(leaf_.type != PhysicalType::boolean, "a dictionary of booleans");
  has_dictionary_ = true;
  const std::string bytes = unpack_page(codec_, body, static_cast<size_t>(header.uncompressed_size));
  const std::unique_ptr<ValueDecoder> values = make_value_decoder(Encoding::plain, leaf_, bytes);
  StoredValue value;
  for (int32_t i = 0; i < header.num_values; ++i) {
    values->next(value);
    dictionary_.push_back(to_json(leaf_, value));
  }
}

RunDecoder ColumnReader::take_levels(std::string_view& bytes, Encoding encoding, int max_level) const {
  if (max_level == 0) return {};
  HONE_CHECK(encoding == Encoding::rle, "its levels have the encoding ", static_cast<int>(encoding),
             ", which hone does not read");
  uint32_t size = 0;
  std::memcpy(&size, take(bytes, sizeof size).data(), sizeof size);
  return {take(bytes, size), width_of(max_level)};
}

void ColumnReader::begin_data_page(const PageHeader& header, const std::string& body) {
  HONE_CHECK(header.num_values <= entries_left_, "its pages have more values than its metadata say");
  entries_left_ -= header.num_values;
  page_left_ = header.num_values;
  const auto size = static_cast<uint64_t>(header.uncompressed_size);
  std::string_view bytes;
  if (header.type == PageType::data_v2) {
    const auto levels = static_cast<uint64_t>(header.repetition_bytes) + static_cast<uint64_t>(header.definition_bytes);
    HONE_CHECK(levels <= body.size() && levels <= size, "a page has levels of ", levels, " bytes and only ",
               std::min<uint64_t>(body.size(), size), " bytes");
    const Codec codec = header.compressed ? codec_ : Codec::uncompressed;
    page_ = body.substr(0, levels) + unpack_page(codec, std::string_view(body).substr(levels), size - levels);
    bytes = page_;
    repetitions_ = {take(bytes, static_cast<uint64_t>(header.repetition_bytes)), width_of(leaf_.max_repetition)};
    definitions_ = {take(bytes, static_cast<uint64_t>(header.definition_bytes)), width_of(leaf_.max_definition)};
  } else {
    page_ = unpack_page(codec_, body, size);
    bytes = page_;
    repetitions_ = take_levels(bytes, header.repetition_encoding, leaf_.max_repetition);
    definitions_ = take_levels(bytes, header.definition_encoding, leaf_.max_definition);
  }
  uses_dictionary_ = is_dictionary(header.encoding);
  if (!uses_dictionary_) {
    values_ = make_value_decoder(header.encoding, leaf_, bytes);
    return;
  }
  HONE_CHECK(has_dictionary_, "a page needs a dictionary, and the column has none");
  // A page of nulls alone may have no values at all.
  const int width = bytes.empty() ? 0 : static_cast<uint8_t>(take(bytes, 1).front());
  indices_ = {bytes, width};
}

}  // namespace hone::parquet
