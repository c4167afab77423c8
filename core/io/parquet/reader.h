#pragma once
// Reads Parquet files (https://parquet.apache.org/docs/file-format/) as JSON rows. Debian has no Parquet library.
//
//   codecs      uncompressed, snappy, gzip, zstd, LZ4 (both kinds); Brotli and LZO are an Error that names them
//   encodings   PLAIN, dictionaries, RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY,
//               BYTE_STREAM_SPLIT; data pages of version 1 and 2; checksums are compared
//   nesting     structs, lists (of three levels and the older forms), maps
//
// Values become JSON as follows. Timestamps, dates, times and decimals are strings (2024-01-31T12:00:00.000Z, 12.50). A
// map is a list of [key, value]. Bytes that are not text are {"$b64": base64}.
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/io/row_stream.h"

namespace hone {

inline constexpr std::string_view parquet_magic = "PAR1";

// A file that is compressed as a whole (.parquet.gz) is unpacked into memory.
std::unique_ptr<RowReader> open_parquet_rows(const std::filesystem::path& path);
// `bytes`: a complete file, which must outlive the reader. name: for messages.
std::unique_ptr<RowReader> open_parquet_bytes(std::string_view bytes, std::string name);

}  // namespace hone
