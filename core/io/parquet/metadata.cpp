#include "core/io/parquet/metadata.h"

#include "core/io/parquet/thrift.h"

namespace hone::parquet {
namespace {

// An integer of the metadata as an enumeration whose last value is `last`.
template <class Enum>
Enum read_enum(ThriftReader& in, Enum last, std::string_view what) {
  const int32_t value = in.int32();
  HONE_CHECK(value >= 0 && value <= static_cast<int32_t>(last), "the metadata have the unknown ", what, " ", value);
  return static_cast<Enum>(value);
}

int64_t read_count(ThriftReader& in, std::string_view what) {
  const int64_t value = in.integer();
  HONE_CHECK(value >= 0, "the metadata have ", value, " as ", what);
  return value;
}

int32_t read_size(ThriftReader& in, std::string_view what) {
  const int32_t value = in.int32();
  HONE_CHECK(value >= 0, "the metadata have ", value, " as ", what);
  return value;
}

// The older annotation.
Annotation of_converted_type(int32_t type) {
  switch (type) {
    case 0:
      return {.meaning = Meaning::string};
    case 1:
    case 2:
      return {.meaning = Meaning::map};
    case 3:
      return {.meaning = Meaning::list};
    case 4:
      return {.meaning = Meaning::enumeration};
    case 5:
      return {.meaning = Meaning::decimal};
    case 6:
      return {.meaning = Meaning::date};
    case 7:
      return {.meaning = Meaning::time, .unit = TimeUnit::milliseconds};
    case 8:
      return {.meaning = Meaning::time, .unit = TimeUnit::microseconds};
    case 9:
      return {.meaning = Meaning::timestamp, .unit = TimeUnit::milliseconds, .utc = true};
    case 10:
      return {.meaning = Meaning::timestamp, .unit = TimeUnit::microseconds, .utc = true};
    case 11:
    case 12:
    case 13:
    case 14:
      return {.meaning = Meaning::unsigned_integer};
    case 19:
      return {.meaning = Meaning::json};
    case 20:
      return {.meaning = Meaning::bson};
    default:
      return {};
  }
}

// The fields of TimeType and TimestampType.
Annotation read_time(ThriftReader& in, Meaning meaning) {
  Annotation out{.meaning = meaning};
  in.each_field([&](int64_t id) {
    if (id == 1) out.utc = in.boolean();
    if (id == 2)
      in.each_field([&](int64_t unit) {
        HONE_CHECK(unit >= 1 && unit <= 3, "the metadata have the unknown unit of time ", unit);
        out.unit = static_cast<TimeUnit>(unit - 1);
        return false;
      });
    return id == 1 || id == 2;
  });
  return out;
}

Annotation read_decimal(ThriftReader& in) {
  Annotation out{.meaning = Meaning::decimal};
  in.each_field([&](int64_t id) {
    if (id == 1) out.scale = in.int32();
    return id == 1;
  });
  return out;
}

Annotation read_integer_type(ThriftReader& in) {
  Annotation out;
  in.each_field([&](int64_t id) {
    if (id == 2 && !in.boolean()) out.meaning = Meaning::unsigned_integer;
    return id == 2;
  });
  return out;
}

Annotation read_logical_type(ThriftReader& in) {
  Annotation out;
  in.each_field([&](int64_t id) {
    switch (id) {
      case 1:
        out.meaning = Meaning::string;
        return false;
      case 2:
        out.meaning = Meaning::map;
        return false;
      case 3:
        out.meaning = Meaning::list;
        return false;
      case 4:
        out.meaning = Meaning::enumeration;
        return false;
      case 5:
        out = read_decimal(in);
        return true;
      case 6:
        out.meaning = Meaning::date;
        return false;
      case 7:
        out = read_time(in, Meaning::time);
        return true;
      case 8:
        out = read_time(in, Meaning::timestamp);
        return true;
      case 10:
        out = read_integer_type(in);
        return true;
      case 12:
        out.meaning = Meaning::json;
        return false;
      case 13:
        out.meaning = Meaning::bson;
        return false;
      case 14:
        out.meaning = Meaning::uuid;
        return false;
      case 15:
        out.meaning = Meaning::float16;
        return false;
      default:
        return false;
    }
  });
  return out;
}

SchemaElement read_schema_element(ThriftReader& in) {
  SchemaElement out;
  Annotation converted, logical;
  int32_t scale = 0;
  in.each_field([&](int64_t id) {
    switch (id) {
      case 1:
        out.type = read_enum(in, PhysicalType::fixed_len_byte_array, "type");
        return true;
      case 2:
        out.type_length = read_size(in, "length of a type");
        return true;
      case 3:
        out.repetition = read_enum(in, Repetition::repeated, "repetition");
        return true;
      case 4:
        out.name = in.binary();
        return true;
      case 5:
        out.num_children = read_size(in, "number of children");
        return true;
      case 6:
        converted = of_converted_type(in.int32());
        return true;
      case 7:
        scale = in.int32();
        return true;
      case 10:
        logical = read_logical_type(in);
        return true;
      default:
        return false;
    }
  });
  out.annotation = logical.meaning == Meaning::none ? converted : logical;
  if (logical.meaning != Meaning::decimal) out.annotation.scale = scale;
  HONE_CHECK(out.annotation.scale >= 0 && out.annotation.scale <= 10000, "column '", out.name, "' has the scale ",
             out.annotation.scale);
  return out;
}

void read_column_metadata(ThriftReader& in, ColumnChunk& out) {
  in.each_field([&](int64_t id) {
    switch (id) {
      case 1:
        out.type = read_enum(in, PhysicalType::fixed_len_byte_array, "type");
        return true;
      case 4:
        out.codec = read_enum(in, Codec::lz4_raw, "compression");
        return true;
      case 5:
        out.num_values = read_count(in, "number of values");
        return true;
      case 9:
        out.data_page_offset = read_count(in, "offset of a page");
        return true;
      case 11:
        out.dictionary_page_offset = read_count(in, "offset of a page");
        return true;
      default:
        return false;
    }
  });
}

ColumnChunk read_column_chunk(ThriftReader& in) {
  ColumnChunk out;
  in.each_field([&](int64_t id) {
    if (id == 1) out.elsewhere = true;
    if (id == 8) out.encrypted = true;
    if (id == 3) read_column_metadata(in, out);
    return id == 3;
  });
  return out;
}

RowGroup read_row_group(ThriftReader& in) {
  RowGroup out;
  in.each_field([&](int64_t id) {
    if (id == 1) in.each_element([&] { out.columns.push_back(read_column_chunk(in)); });
    if (id == 3) out.num_rows = read_count(in, "number of rows");
    return id == 1 || id == 3;
  });
  return out;
}

void read_data_page(ThriftReader& in, PageHeader& out) {
  out.has_details = true;
  in.each_field([&](int64_t id) {
    if (id == 1) out.num_values = read_size(in, "number of values");
    if (id == 2) out.encoding = read_enum(in, Encoding::byte_stream_split, "encoding");
    if (id == 3) out.definition_encoding = read_enum(in, Encoding::byte_stream_split, "encoding");
    if (id == 4) out.repetition_encoding = read_enum(in, Encoding::byte_stream_split, "encoding");
    return id >= 1 && id <= 4;
  });
}

void read_dictionary_page(ThriftReader& in, PageHeader& out) {
  out.has_details = true;
  in.each_field([&](int64_t id) {
    if (id == 1) out.num_values = read_size(in, "number of values");
    if (id == 2) out.encoding = read_enum(in, Encoding::byte_stream_split, "encoding");
    return id == 1 || id == 2;
  });
}

void read_data_page_v2(ThriftReader& in, PageHeader& out) {
  out.has_details = true;
  in.each_field([&](int64_t id) {
    if (id == 1) out.num_values = read_size(in, "number of values");
    if (id == 4) out.encoding = read_enum(in, Encoding::byte_stream_split, "encoding");
    if (id == 5) out.definition_bytes = read_size(in, "size of levels");
    if (id == 6) out.repetition_bytes = read_size(in, "size of levels");
    if (id == 7) out.compressed = in.boolean();
    return id == 1 || (id >= 4 && id <= 7);
  });
}

}  // namespace

FileMetadata parse_metadata(std::string_view footer) {
  FileMetadata out;
  ThriftReader in(footer);
  in.each_field([&](int64_t id) {
    if (id == 2) in.each_element([&] { out.schema.push_back(read_schema_element(in)); });
    if (id == 4) in.each_element([&] { out.row_groups.push_back(read_row_group(in)); });
    HONE_CHECK(id != 8, "the file is encrypted; hone has no keys for it");
    return id == 2 || id == 4;
  });
  HONE_CHECK(!out.schema.empty(), "the metadata have no schema");
  return out;
}

PageHeader parse_page_header(std::string_view bytes) {
  PageHeader out;
  ThriftReader in(bytes);
  in.each_field([&](int64_t id) {
    switch (id) {
      case 1:
        out.type = read_enum(in, PageType::data_v2, "type of page");
        return true;
      case 2:
        out.uncompressed_size = read_size(in, "size of a page");
        return true;
      case 3:
        out.compressed_size = read_size(in, "size of a page");
        return true;
      case 4:
        out.checksum = static_cast<uint32_t>(in.int32());
        return true;
      case 5:
        read_data_page(in, out);
        return true;
      case 7:
        read_dictionary_page(in, out);
        return true;
      case 8:
        read_data_page_v2(in, out);
        return true;
      default:
        return false;
    }
  });
  out.header_bytes = in.position();
  return out;
}

}  // namespace hone::parquet
