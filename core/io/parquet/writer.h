#pragma once
// Writes JSON rows as Parquet: every column nullable, types from a survey of all rows. Texts, 64-bit integers, doubles,
// booleans, lists (three levels) and structs; PLAIN values in data pages of version 1 with zstd and checksums.
//
// What Parquet does not tell apart reads back alike: a missing member is null. A column of integers and other numbers
// is double. Values of different kinds in one column, empty structs, and integers above 2^53 in a column of doubles are
// an Error that names row and column.
#include <filesystem>
#include <memory>

#include "core/io/row_stream.h"

namespace hone {

std::unique_ptr<RowWriter> create_parquet_rows(const std::filesystem::path& path);

}  // namespace hone
