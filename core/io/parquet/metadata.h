#pragma once
// The metadata of a Parquet file: schema, row groups, headers of pages. Names are those of parquet.thrift.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone::parquet {

enum class PhysicalType { boolean, int32, int64, int96, float32, float64, byte_array, fixed_len_byte_array };
enum class Repetition { required, optional, repeated };
enum class Encoding {
  plain = 0,
  plain_dictionary = 2,
  rle = 3,
  bit_packed = 4,
  delta_binary_packed = 5,
  delta_length_byte_array = 6,
  delta_byte_array = 7,
  rle_dictionary = 8,
  byte_stream_split = 9
};
enum class Codec { uncompressed, snappy, gzip, lzo, brotli, lz4, zstd, lz4_raw };
enum class PageType { data, index, dictionary, data_v2 };

// What the values mean, from the logical type or from the older converted type.
enum class Meaning {
  none,
  string,
  json,
  bson,
  enumeration,
  uuid,
  decimal,
  date,
  time,
  timestamp,
  float16,
  unsigned_integer,
  list,
  map
};
enum class TimeUnit { milliseconds, microseconds, nanoseconds };

struct Annotation {
  Meaning meaning = Meaning::none;
  int32_t scale = 0;                       // decimal
  TimeUnit unit = TimeUnit::milliseconds;  // time, timestamp
  bool utc = false;                        // timestamp
};

struct SchemaElement {
  std::string name;
  std::optional<PhysicalType> type;  // absent: a group
  Repetition repetition = Repetition::required;
  int32_t type_length = 0;
  int32_t num_children = 0;
  Annotation annotation;
};

struct ColumnChunk {
  bool elsewhere = false;  // in another file
  bool encrypted = false;
  std::optional<PhysicalType> type;
  Codec codec = Codec::uncompressed;
  int64_t num_values = 0, data_page_offset = 0, dictionary_page_offset = 0;
};

struct RowGroup {
  std::vector<ColumnChunk> columns;
  int64_t num_rows = 0;
};

struct FileMetadata {
  std::vector<SchemaElement> schema;
  std::vector<RowGroup> row_groups;
};

struct PageHeader {
  PageType type = PageType::data;
  int32_t compressed_size = 0, uncompressed_size = 0;
  std::optional<uint32_t> checksum;
  // Of data and dictionary pages.
  bool has_details = false;  // the header of the page's own type is there
  int32_t num_values = 0;
  Encoding encoding = Encoding::plain;
  Encoding definition_encoding = Encoding::rle, repetition_encoding = Encoding::rle;  // version 1
  int32_t definition_bytes = 0, repetition_bytes = 0;                                 // version 2
  bool compressed = true;                                                             // version 2
  size_t header_bytes = 0;
};

// Throws an Error that says what is wrong.
FileMetadata parse_metadata(std::string_view footer);
// Throws ThriftTruncated (thrift.h) if the bytes end within the header.
PageHeader parse_page_header(std::string_view bytes);

}  // namespace hone::parquet
